// Curves of the pinned heads and of the one in hand, over the grey band of all heads and the bands of other runs.

const BAND_COLOURS = ["band", "other", "accent", "warn"];

function drawCurves() {
  const probe = series[state.probe], circuit = circuitInHand();
  const rows = [...state.pins.filter((row) => row !== state.row), state.row];
  const all = bandOfHeads(probe, rowsOf(circuit));
  const others = bands.map((band) => bandOfRun(band, `${probe.name}|${circuit}`)).filter(Boolean).slice(0, PINS);
  const curves = rows.map((row) => probe.values.row(row));
  const null_ = probe.nulls.find((one) => one.circuit === circuit);
  const axis = valueAxis("curves", [all.low, all.high, ...curves, ...others.flatMap((one) => [one.low, one.high])]);
  const x = steps.map(logOf);
  [all, ...others].forEach((band, n) => {
    fill(`curves-band-${n}`, { x: band.steps.map(logOf), low: axis.map(band.low), high: axis.map(band.high) });
    named(`curves-band-glyph-${n}`).glyph.fill_color = colourOf(BAND_COLOURS[n % BAND_COLOURS.length]);
  });
  for (let n = 1 + others.length; n <= PINS; n++) fill(`curves-band-${n}`, { x: [], low: [], high: [] });
  const middles = [all, ...others], level = null_ && (axis.isLog ? Math.log10(null_.level) : null_.level);
  const hasLevel = null_ && level >= axis.bottom && level <= axis.top;
  fill("curves-middles", {
    xs: [...middles.map((band) => band.steps.map(logOf)), ...(hasLevel ? [[x[0], x[x.length - 1]]] : [])],
    ys: [...middles.map((band) => axis.map(band.middle)), ...(hasLevel ? [[level, level]] : [])],
    colour: [...middles.map((_, n) => colourOf(BAND_COLOURS[n % BAND_COLOURS.length])), ...(hasLevel ? [colourOf("warn")] : [])],
    dash: [...middles.map((_, n) => (n ? "dashed" : "solid")), ...(hasLevel ? ["dotted"] : [])],
  });
  const isPinned = (row) => state.pins.includes(row);
  fill("curves-lines", {
    xs: rows.map(() => x), ys: curves.map(axis.map),
    colour: rows.map((row) => (isPinned(row) ? pinColour(row) : colourOf("ink"))),
    width: rows.map((row) => (row === state.row ? 3 : 2)),
    dash: rows.map((row) => (isPinned(row) ? dashes[state.pins.indexOf(row)] : "solid")),
  });
  stepTicks("curves", x[0], x[x.length - 1]);
  named("curves-xaxis").axis_label = `${run.step_unit}, logarithmic`;
  eventBands("curves", axis.bottom, axis.top);
  named("curves-cursor").location = logOf(steps[state.column]);
  put("curves-name", `${circuit} ${seriesTitle(probe)}${axis.isLog ? ", logarithmic" : ""}`);
  drawPins(others);
  sayCurves(probe, circuit, others, hasLevel ? null_ : null, null_);
}

// Tenth, middle and ninth tenth of the heads at each checkpoint.
function bandOfHeads(probe, rows) {
  const [low, middle, high] = [0, 1, 2].map(() => new Float64Array(steps.length).fill(NaN));
  const values = rows.map((row) => probe.values.row(row));
  for (let i = 0; i < steps.length; i++) {
    const known = values.map((one) => one[i]).filter((one) => one === one).sort((a, b) => a - b);
    if (known.length) [low[i], middle[i], high[i]] = [0.1, 0.5, 0.9].map((share) => quantile(known, share));
  }
  return { run: `all ${rows.length} heads`, steps, low, middle, high };
}
function bandOfRun(band, key) {
  const packed = band.quantiles[key];
  if (!packed) return null;
  return { run: band.run, role: band.role, steps: band.steps, low: packed.row(0), middle: packed.row(1), high: packed.row(2) };
}

function drawPins(others) {
  const pins = state.pins.map((row) => {
    const button = element("button", { type: "button", title: "Unpin", "aria-label": `Unpin ${rowName(row)}`,
      style: { borderLeftColor: pinColour(row) } }, `${shortened(rowName(row), 30)} ×`);
    button.addEventListener("click", () => togglePin(row));
    return button;
  });
  if (!state.pins.includes(state.row)) {
    const button = element("button", { type: "button", style: { borderLeftColor: colourOf("ink") } },
      `Pin ${shortened(rowName(state.row), 30)}`);
    button.addEventListener("click", () => togglePin(state.row));
    pins.push(button);
  }
  const patches = others.map((band, n) => element("span", {},
    element("span", { class: "legend" }, element("span", { class: "patch",
      style: { background: colourOf(BAND_COLOURS[(n + 1) % BAND_COLOURS.length]) } }), `${band.role} ${shortened(band.run, 40)}`)));
  put("pins", ...pins, ...patches);
}

function sayCurves(probe, circuit, others, level, null_) {
  const row = state.row, values = probe.values.row(row);
  const known = values.filter((one) => one === one);
  let said = known.length
    ? `${rowName(row)} goes from ${numberText(known[0])} to ${numberText(known[known.length - 1])}. `
    : `${rowName(row)} has no number at any checkpoint: ${whyMissing(state.probe, row, 0)}. `;
  const crowd = rowsOf(circuit).length;
  if (crowd > 1) said += `Grey: the middle eight tenths of the ${crowd} ${circuit} rows, with their median. `;
  if (others.length) said += `Coloured bands: the same of ${others.map((one) => shortened(one.run, 40)).join(", ")}. `;
  if (null_) said += `By chance: ${null_.sentence}${level ? " (dotted)" : ""}`;
  put("curves-said", said);
}
