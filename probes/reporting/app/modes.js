// The spectrum of the row in hand: its final modes followed backwards, and its sorted singular values behind them.

function drawModes() {
  if (!document.getElementById("modes")) return;
  const row = state.row, x = steps.map(logOf);
  const rowsIn = (name) => (modes[name] ? [...Array(modeCount).keys()].map((k) => modes[name].row(row * modeCount + k)) : []);
  const amplitudes = rowsIn("mode_amplitude"), values = rowsIn("singular_value");
  const axis = valueAxis("modes", [...amplitudes, ...values]);
  fill("modes-lines", {
    xs: [...values, ...amplitudes].map(() => x), ys: [...values, ...amplitudes].map(axis.map),
    colour: [...values.map(() => colourOf("band")), ...amplitudes.map((_, k) => palettes.pins[k])],
    width: [...values.map(() => 1.5), ...amplitudes.map(() => 2.5)],
    dash: [...values.map(() => "dashed"), ...amplitudes.map(() => "solid")],
  });
  stepTicks("modes", x[0], x[x.length - 1]);
  named("modes-xaxis").axis_label = `${run.step_unit}, logarithmic`;
  eventBands("modes", axis.bottom, axis.top);
  named("modes-cursor").location = logOf(steps[state.column]);
  put("modes-name", rowName(row));
  const there = amplitudes.filter((one) => one.some((value) => value === value));
  put("modes-legend", ...there.map((_, k) => keyOf(palettes.pins[k], `mode ${k + 1}`)), keyOf(colourOf("band"), "singular values, sorted", true));
  const halves = there.map((curve, k) => {
    const end = curve[curve.length - 1], reached = curve.findIndex((value) => Math.abs(value) >= Math.abs(end) / 2 && value * end > 0);
    return `mode ${k + 1} ends at ${numberText(end)}${reached >= 0 ? `, half of that first at ${run.step_unit} ${stepText(steps[reached])}` : ""}`;
  });
  put("modes-said", there.length
    ? `Solid: u·M(t)·v with the singular vectors of the last checkpoint, so that a mode keeps its name. ${halves.join("; ")}.`
    : `${rowName(row)} has no modes to follow.`);
}

const keyOf = (colour, name, dashed = false) => element("span", {},
  element("span", { class: dashed ? "key dashed" : "key", style: { borderTopColor: colour } }), shortened(name, 60));

// Small figures: fixed curves with peaks.
function drawSmall() {
  run.figures.forEach((figure, n) => {
    const name = `small-${n}`, axis = valueAxis(name, figure.lines.map((line) => line.y)), x = figure.lines.map((line) => line.x.map(logOf));
    const colour = figure.lines.map((_, k) => palettes.pins[(figure.key === "theory" ? Math.floor(k / 2) : k) % palettes.pins.length]);
    fill(`${name}-lines`, {
      xs: x, ys: figure.lines.map((line) => axis.map(line.y)), colour,
      width: figure.lines.map(() => 2), dash: figure.lines.map((line) => (line.dashed ? "dashed" : "solid")),
    });
    const flat = x.flat(), low = Math.min(...flat), high = Math.max(...flat);
    ticks(name, "x", ...logTicks(low, high));
    range(name, "x", low, high);
    eventBands(name, axis.bottom, axis.top);
    fill(`${name}-marks`, {
      x: figure.marks.map(([step]) => logOf(step)), y0: figure.marks.map(() => axis.bottom), y1: figure.marks.map(() => axis.top),
      colour: figure.marks.map(() => colourOf("ink")),
    });
    named(`${name}-yaxis`).axis_label = figure.y_name;
    named(`${name}-xaxis`).axis_label = figure.key === "autocorrelation" ? "lag, logarithmic" : `${run.step_unit}, logarithmic`;
    put(`${name}-legend`, ...figure.lines.map((line, k) => keyOf(colour[k], line.name, line.dashed)));
  });
}
