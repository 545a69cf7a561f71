// What is being looked at, kept in the address: whoever opens the link sees the same.

const PINS = 8;
// The event to open with: one that sets the run apart, seen in weights and metrics, the surest of these.
const inWeights = run.events.filter((event) => event.series !== null);
const weight = (event) => 2 * event.headline + event.findings.some((one) => one.is_metric);
const first = [...inWeights].sort((a, b) => weight(b) - weight(a) || a.q_value - b.q_value)[0];

// How far a curve moves, from its lowest to its highest number.
function spread(values) {
  let low = Infinity, high = -Infinity;
  for (const one of values) if (one === one) { low = Math.min(low, one); high = Math.max(high, one); }
  return high >= low ? high - low : -1;
}
// Without an event in the weights: the rows of the first circuit that moved most.
function mostMoved(count) {
  const rows = run.rows.map((_, n) => n).filter((n) => run.rows[n].circuit === circuits[0]);
  const size = new Map(rows.map((row) => [row, spread(series[0].values.row(row))]));
  return rows.sort((a, b) => size.get(b) - size.get(a) || a - b).slice(0, count);
}

// The checkpoint nearest to a step among those that the audit did not condemn.
const soundColumn = (step) => steps.reduce((best, one, i) => (one in run.condemned ? best
  : best === null || Math.abs(one - step) < Math.abs(steps[best] - step) ? i : best), null) ?? nearestColumn(step);

// How the page opens: at the event above, with the heads that take part.
const opening = () => ({
  probe: first ? first.series : 0,
  circuit: first ? first.circuit : circuits[0] ?? "",
  order: "layer",
  scale: "raw",
  align: "step",
  column: run.events.length ? soundColumn((first ?? run.events[0]).step) : soundColumn(steps[steps.length - 1]),
  from: null,
  pins: first ? first.rows.slice(0, 4) : mostMoved(3),
  row: first && first.rows.length ? first.rows[0] : mostMoved(1)[0],
});

// By names and steps rather than places, so that a link still fits when the report is made anew.
function toFragment(state) {
  const fields = new URLSearchParams();
  fields.set("probe", series[state.probe].name);
  fields.set("circuit", state.circuit);
  fields.set("order", state.order);
  fields.set("scale", state.scale);
  if (state.align !== "step") fields.set("align", state.align);
  fields.set("step", steps[state.column]);
  if (state.from !== null) fields.set("from", steps[state.from]);
  fields.set("head", rowName(state.row));
  fields.set("pins", JSON.stringify(state.pins.map(rowName)));
  return fields.toString();
}

// What the fragment says, where it makes sense; the opening for all else.
function fromFragment(text) {
  const state = opening(), fields = new URLSearchParams(text.replace(/^#/, ""));
  const byName = new Map(run.rows.map((_, number) => [rowName(number), number]));
  const probe = series.findIndex((one) => one.name === fields.get("probe"));
  if (probe >= 0) state.probe = probe;
  const circuit = fields.get("circuit");
  if (circuit === "all" || circuits.includes(circuit)) state.circuit = circuit;
  if (["layer", "event", "change"].includes(fields.get("order"))) state.order = fields.get("order");
  if (["raw", "z"].includes(fields.get("scale"))) state.scale = fields.get("scale");
  if (fields.get("align") === "event" && (page.comparison?.runs ?? []).some((one) => one.own !== null)) state.align = "event";
  const step = Number(fields.get("step"));
  if (fields.has("step") && Number.isFinite(step)) state.column = nearestColumn(step);
  const from = Number(fields.get("from"));
  if (fields.has("from") && Number.isFinite(from)) state.from = nearestColumn(from);
  if (byName.has(fields.get("head"))) state.row = byName.get(fields.get("head"));
  try {
    const pins = JSON.parse(fields.get("pins"));
    if (Array.isArray(pins)) {
      state.pins = [...new Set(pins.map((name) => byName.get(name)).filter((one) => one !== undefined))].slice(0, PINS);
    }
  } catch { /* somebody cut the link short: the opening's pins stay */ }
  return state;
}

const hasView = run.rows.length > 0 && series.length > 0;
let state = hasView ? fromFragment(location.hash) : null;
const listeners = [];

// Change some of it; everything that is drawn from it is drawn again, and the address follows.
function change(changes) {
  const before = state;
  state = { ...state, ...changes };
  for (const listen of listeners) listen(state, before);
  history.replaceState(null, "", "#" + toFragment(state));
}

function togglePin(row) {
  const pins = state.pins.includes(row) ? state.pins.filter((one) => one !== row) : [...state.pins, row];
  if (pins.length > PINS) {
    say(`${PINS} heads are pinned, which is as many as can be told apart: unpin one first.`);
    return;
  }
  change({ pins, row });
}

const say = (text) => { document.getElementById("readout").textContent = text; };

// The circuit that curves and grid are about: the chosen one, or that of the row in hand.
const circuitInHand = () => (state.circuit === "all" ? run.rows[state.row].circuit : state.circuit);
const rowsOf = (circuit) => run.rows.map((_, n) => n).filter((n) => circuit === "all" || run.rows[n].circuit === circuit);
