// Layer by head at the cursor's step, or the change since another step.

const gridScales = new Map();
let gridCells = [];   // [layer place][head] -> row, as drawn from the top

function drawGrid() {
  const probe = series[state.probe], circuit = circuitInHand(), rows = rowsOf(circuit);
  const layers = [...new Map(rows.map((row) => [`${run.rows[row].tower} ${run.rows[row].layer}`, run.rows[row]])).values()];
  const heads = Math.max(...rows.map((row) => run.rows[row].head)) + 1;
  const place = new Map(layers.map((one, n) => [`${one.tower} ${one.layer}`, n]));
  gridCells = layers.map(() => new Array(heads).fill(null));
  const cells = new Float32Array(layers.length * heads).fill(NaN), isChange = state.from !== null;
  const valueOf = (row) => {
    const values = probe.values.row(row);
    return values[state.column] - (isChange ? values[state.from] : 0);
  };
  for (const row of rows) {
    const { tower, layer, head } = run.rows[row], line = place.get(`${tower} ${layer}`);
    gridCells[line][head] = row;
    cells[(layers.length - 1 - line) * heads + head] = valueOf(row);
  }
  const look = gridLook(probe, rows, cells, isChange);
  named("grid-colours").setv(look);
  const figure = named("grid"), height = Math.max(150, Math.min(460, 70 + Math.max(24, Math.min(44, 400 / layers.length)) * layers.length));
  if (figure.height !== height) figure.height = height;
  range("grid", "x", 0, heads);
  range("grid", "y", 0, layers.length);
  fill("grid-cells", { image: [ndarray(cells, [layers.length, heads])], x: [0], y: [0], dw: [heads], dh: [layers.length] });
  drawGridText(rows, place, layers, valueOf, look, heads);
  const every = Math.ceil(heads / 16), columns = [...Array(heads).keys()].filter((n) => n % every === 0);
  ticks("grid", "x", columns.map((n) => n + 0.5), columns.map(String));
  const skip = Math.ceil(layers.length / 24), lines = layers.map((_, n) => n).filter((n) => n % skip === 0);
  ticks("grid", "y", lines.map((n) => layers.length - n - 0.5),
    lines.map((n) => shortened(`${layers[n].tower ? layers[n].tower + ":" : ""}${layers[n].layer}`, 14)));
  named("grid-xaxis").axis_label = "head";
  named("grid-yaxis").axis_label = "layer";
  const when = isChange ? `${stepText(steps[state.from])} to ${stepText(steps[state.column])}` : stepText(steps[state.column]);
  put("grid-name", `${circuit} ${seriesTitle(probe)}, ${run.step_unit} ${when}`);
  put("grid-legend", ramp(look.low, look.palette, look.high, isChange ? "change" : "value"));
  sayGrid(rows, valueOf, isChange);
}

// The scale of the whole run, so that the slider shows movement; changes about zero.
function gridLook(probe, rows, cells, isChange) {
  if (isChange) {
    let most = 0;
    for (const one of cells) if (one === one) most = Math.max(most, Math.abs(one));
    return { low: -(most || 1), high: most || 1, palette: palettes.z };
  }
  const key = `${probe.name}|${run.rows[rows[0]].circuit}`;
  if (!gridScales.has(key)) {   // sorted once for each probe and circuit: the slider must not wait for it
    const known = Float64Array.from(rows.flatMap((row) => Array.from(probe.values.row(row)).filter((one) => one === one))).sort();
    gridScales.set(key, known.length ? [quantile(known, 0.01), quantile(known, 0.99)] : [0, 1]);
  }
  const [low, high] = gridScales.get(key);
  return high > low ? { low, high, palette: palettes.raw } : { low: low - 0.5, high: low + 0.5, palette: palettes.raw };
}

function drawGridText(rows, place, layers, valueOf, look, heads) {
  const at = (row) => {
    const { tower, layer, head } = run.rows[row];
    return [head + 0.5, layers.length - 0.5 - place.get(`${tower} ${layer}`)];
  };
  const width = document.getElementById("grid").clientWidth / heads, written = width > 44 && rows.length <= 100 ? rows : [];
  const isDark = (value) => {
    const colour = look.palette[Math.round(Math.min(1, Math.max(0, (value - look.low) / (look.high - look.low))) * (look.palette.length - 1))];
    const [r, g, b] = [1, 3, 5].map((n) => parseInt(colour.slice(n, n + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b < 140;
  };
  fill("grid-numbers", {
    x: written.map((row) => at(row)[0]), y: written.map((row) => at(row)[1]), text: written.map((row) => numberText(valueOf(row))),
    colour: written.map((row) => (Number.isFinite(valueOf(row)) ? (isDark(valueOf(row)) ? "#ffffff" : "#14171c") : colourOf("muted"))),
  });
  const circuit = run.rows[rows[0]].circuit;
  const marked = [...state.pins.filter((row) => row !== state.row), state.row].filter((row) => run.rows[row].circuit === circuit);
  fill("grid-marked", {
    x: marked.map((row) => at(row)[0]), y: marked.map((row) => at(row)[1]), width: marked.map(() => 0.94), height: marked.map(() => 0.92),
    colour: marked.map((row) => (state.pins.includes(row) ? pinColour(row) : colourOf("ink"))),
  });
}

function sayGrid(rows, valueOf, isChange) {
  const known = rows.filter((row) => Number.isFinite(valueOf(row))).sort((a, b) => valueOf(b) - valueOf(a));
  if (!known.length) return put("grid-said", "No head has a number here.");
  const [top, bottom] = [known[0], known[known.length - 1]];
  if (known.length === 1) return put("grid-said", `${rowName(top)}: ${numberText(valueOf(top))}.`);
  const what = isChange ? "Largest rise" : "Largest";
  put("grid-said", `${what} in ${rowName(top)}: ${numberText(valueOf(top))}; ${isChange ? "largest fall or least rise" : "smallest"} in `
    + `${rowName(bottom)}: ${numberText(valueOf(bottom))}. ${rows.length - known.length ? `${rows.length - known.length} without a number.` : ""}`);
}

function gridRowAt(x, y) {
  const line = gridCells.length - 1 - Math.floor(y), head = Math.floor(x);
  return gridCells[line]?.[head] ?? null;
}

// From a row to the one beside it in the grid.
function gridNeighbour(row, dx, dy) {
  const line = gridCells.findIndex((cells) => cells.includes(row));
  if (line < 0) return gridCells.flat().find((one) => one !== null);
  return gridCells[line + dy]?.[gridCells[line].indexOf(row) + dx] ?? row;
}
