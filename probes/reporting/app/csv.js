// Tables of what is shown, built in the page and handed over as files.

// A text that a spreadsheet could take for a formula is set off by an apostrophe.
const cell = (value) => {
  if (typeof value === "number") return Number.isFinite(value) ? String(Number(value.toPrecision(6))) : "";
  const text = /^[=+\-@\t\r]/.test(value ?? "") ? `'${value}` : value ?? "";
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const lines = (header, rows) => [header, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";

const where = (row) => { const { tower, layer, head, circuit } = run.rows[row]; return [tower, layer, head, circuit]; };
const PLACE = ["tower", "layer", "head", "circuit"];
const wide = (probe, rows) => lines(["probe", ...PLACE, ...steps.map(String)],
  rows.map((row) => [probe.name, ...where(row), ...probe.values.row(row)]));

const TABLES = {
  map: () => wide(series[state.probe], order),
  curves: () => wide(series[state.probe], [...new Set([...state.pins, state.row])]),
  all: () => lines(["probe", ...PLACE, ...steps.map(String)],
    series.flatMap((probe) => run.rows.map((_, row) => [probe.name, ...where(row), ...probe.values.row(row)]))),
  grid: () => lines([...PLACE, "probe", "step", "value", "from_step", "change"], rowsOf(circuitInHand()).map((row) => {
    const values = series[state.probe].values.row(row), from = state.from;
    return [...where(row), series[state.probe].name, steps[state.column], values[state.column],
      from === null ? "" : steps[from], from === null ? "" : values[state.column] - values[from]];
  })),
  modes: () => lines(["what", "component", ...PLACE, ...steps.map(String)], Object.entries(modes).flatMap(([name, packed]) =>
    [...Array(modeCount).keys()].map((k) => [name, k, ...where(state.row), ...packed.row(state.row * modeCount + k)]))),
  events: () => lines(["event", "name", "is_metric", "step", "low", "high", "what", "strength", "q_value", "rests_on", "heads", "shared_with_controls"],
    run.events.flatMap((event) => event.findings.map((one) => [event.number, one.name, String(one.is_metric), one.step, one.low, one.high,
      one.what, one.strength, one.q_value, one.rests_on, one.heads.join(" "), event.shared === null ? "" : String(event.shared)]))),
  metrics: () => lines(["metric", "step", "value"], Object.entries(run.metrics).flatMap(([name, [x, y]]) => x.map((step, n) => [name, step, y[n]]))),
  compare: () => lines(["run", "role", "own_event", "probe", "circuit", "step", "low", "median", "high"], comparedCurves().flatMap((one) =>
    one.curve ? Array.from(one.curve.steps, (step, n) => [one.name, one.role, one.own ?? "", series[state.probe].name, circuitInHand(), step,
      one.curve.low[n], one.curve.middle[n], one.curve.high[n]]) : [])),
  figures: () => lines(["figure", "line", "x", "y"], run.figures.flatMap((figure) => figure.lines.flatMap((line) =>
    line.x.map((x, n) => [figure.key, line.name, x, line.y[n]])))),
};

function download(name) {
  const link = element("a", { download: `${name}.csv`, href: URL.createObjectURL(new Blob([TABLES[name]()], { type: "text/csv" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
