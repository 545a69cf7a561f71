// Several runs in one figure: the median over heads of each, over the step or over the step of each run's own event.

const MOST_RUNS = 16;
const comparison = page.comparison;

// What each run shows of a probe and circuit; the first is the run that the map shows.
function comparedCurves() {
  const probe = series[state.probe], circuit = circuitInHand(), key = `${probe.name}|${circuit}`;
  const main = bandOfHeads(probe, rowsOf(circuit));
  return comparison.runs.map((one, n) => {
    const band = bands.find((other) => other.run === one.name);
    return { ...one, curve: n === 0 ? main : band ? bandOfRun(band, key) : null };
  });
}

function comparedColour(one, place) {
  return one.role === "control" ? colourOf("band") : palettes.pins[place % palettes.pins.length];
}

function drawCompare() {
  if (!comparison || !document.getElementById("compare")) return;
  const everything = comparedCurves(), byEvent = state.align === "event";
  const shown = everything.filter((one) => one.curve && (!byEvent || one.at !== null)).slice(0, MOST_RUNS);
  const place = (one) => (step) => (byEvent ? (step > 0 ? Math.log10(step / one.at) : NaN) : logOf(step));
  const x = shown.map((one) => Array.from(one.curve.steps, place(one)));
  const axis = valueAxis("compare", shown.map((one) => one.curve.middle));
  const colours = shown.map((one, n) => comparedColour(one, n));
  fill("compare-lines", {
    xs: x, ys: shown.map((one) => axis.map(one.curve.middle)), colour: colours,
    width: shown.map((_, n) => (n ? 1.8 : 3)), dash: shown.map((one) => (one.role === "control" ? "dashed" : "solid")),
  });
  const flat = x.flat().filter(Number.isFinite), low = Math.min(...flat), high = Math.max(...flat);
  if (byEvent) { ticks("compare", "x", ...logTicks(low, high)); range("compare", "x", low, high); }
  else stepTicks("compare", low, high);
  named("compare-xaxis").axis_label = byEvent ? `${run.step_unit} / ${run.step_unit} of each run's own event, logarithmic` : `${run.step_unit}, logarithmic`;
  if (byEvent) fill("compare-events", { left: [], right: [], bottom: [], top: [], colour: [] });
  else eventBands("compare", axis.bottom, axis.top);
  named("compare-cursor").location = byEvent ? 0 : logOf(steps[state.column]);
  put("compare-name", `${circuitInHand()} ${seriesTitle(series[state.probe])}${axis.isLog ? ", logarithmic" : ""}`);
  put("compare-legend", ...shown.map((one, n) => keyOf(colours[n], one.role === "control" ? `${one.name} (control)` : one.name, one.role === "control")));
  put("compare-said", sayCompared(everything, shown, byEvent));
}

function sayCompared(everything, shown, byEvent) {
  const names = (several) => several.slice(0, 4).map((one) => shortened(one.name, 40)).join(", ") + (several.length > 4 ? " …" : "");
  let said = `${shown.length} of ${everything.length} are drawn, controls dashed. `;
  const without = everything.filter((one) => !one.curve), tooMany = everything.filter((one) => one.curve && !shown.includes(one));
  if (without.length) said += `Without this probe and circuit: ${names(without)}. `;
  if (tooMany.length) said += `Not drawn, more than can be told apart: ${names(tooMany)}. `;
  const borrowed = shown.filter((one) => one.own === null);
  if (byEvent && borrowed.length) said += `Placed by the middle of the other runs' events, having none of their own here: ${names(borrowed)}. `;
  if (!byEvent) said += "Coloured stretches: the events of the run that the map shows. ";
  return said;
}
