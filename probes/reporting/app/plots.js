// Bokeh's figures: put in their places, found by name, filled, and coloured as the style sheet says.

let models = null;
const ndarray = (values, shape) => Bokeh.require("core/util/ndarray").ndarray(values, { dtype: "float32", shape });
const named = (name) => models.get_model_by_name(name);
const fill = (name, data) => { named(name).data = data; };
const colourOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const dashes = ["solid", "solid", "solid", "solid", "solid", "solid", "dashed", "dashed"];

async function placeFigures() {
  const content = readJson("page-figures");
  const places = ["map", "curves", "grid", "modes", "compare", ...run.figures.map((_, n) => `small-${n}`)];
  const kept = places.map((place, n) => [place, content.roots[n]]).filter(([place]) => document.getElementById(place));
  // one document for all, so that models are found by name wherever they are; each root goes to its own place
  const roots = Object.fromEntries(kept.map(([place, root]) => [root.id, document.getElementById(place)]));
  content.roots = kept.map(([, root]) => root);
  await Bokeh.embed.embed_items({ page: content }, [{ docid: "page", roots, root_ids: Object.keys(roots) }]);
  models = Bokeh.documents[Bokeh.documents.length - 1];
}

// Ticks at these places with these labels.
function ticks(figure, side, places, labels) {
  named(`${figure}-${side}ticks`).ticks = places;
  named(`${figure}-${side}axis`).major_label_overrides = new Map(places.map((place, n) => [place, labels[n]]));
}

function range(figure, side, start, end) {
  const found = named(`${figure}-${side}`);
  if (!(end > start)) { start -= 0.5; end = start + 1; }
  if (found.start !== start || found.end !== end) found.setv({ start, end });
}

// Decades between two powers of ten, with 2 and 5 between where there are few.
function logTicks(low, high) {
  const between = high - low > 3.5 ? [1] : high - low > 1.2 ? [1, 3] : [1, 1.5, 2, 3, 5, 7];
  const places = [], labels = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const factor of between) {
      const value = factor * 10 ** power, place = Math.log10(value);
      if (place >= low - 1e-9 && place <= high + 1e-9) { places.push(place); labels.push(compact(value)); }
    }
  }
  return [places, labels];
}
const compact = (value) => (value >= 1e6 ? `${+(value / 1e6).toPrecision(3)}M` : value >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k`
  : value >= 1 ? stepText(value) : numberText(value));

// Steps below curves: x is log10(step), with "0" where the run has one.
function stepTicks(figure, low, high) {
  const [places, labels] = logTicks(Math.max(low, Math.log10(firstPositive)), high);
  if (steps[0] === 0 && low < Math.log10(firstPositive)) { places.unshift(logOf(0)); labels.unshift("0"); }
  ticks(figure, "x", places, labels);
  range(figure, "x", low, high);
}

// Values beside curves: logarithms where all are positive and the largest is fifty times the smallest.
function valueAxis(figure, values) {
  let low = Infinity, high = -Infinity;
  for (const list of values) for (const one of list) if (Number.isFinite(one)) { low = Math.min(low, one); high = Math.max(high, one); }
  if (low > high) { low = 0; high = 1; }
  const isLog = low > 0 && high > 50 * low;
  const map = isLog ? (value) => (value > 0 ? Math.log10(value) : NaN) : (value) => value;
  low = map(low); high = map(high);
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  const [start, end] = [low - margin, high + margin];
  if (isLog) ticks(figure, "y", ...logTicks(start, end));
  else {
    const raw = (end - start) / 5, unit = 10 ** Math.floor(Math.log10(raw));
    const gap = unit * [1, 2, 5, 10].find((factor) => factor * unit >= raw), places = [];
    for (let n = Math.ceil(start / gap); n * gap <= end; n++) places.push(+(n * gap).toPrecision(12));
    ticks(figure, "y", places, places.map(numberText));
  }
  range(figure, "y", start, end);
  return { map: (list) => Array.from(list, map), bottom: start, top: end, isLog };
}

// Stretches of events behind curves.
function eventBands(figure, bottom, top) {
  const events = run.events;
  fill(`${figure}-events`, {
    left: events.map((one) => logOf(one.low)), right: events.map((one) => logOf(one.high)),
    bottom: events.map(() => bottom), top: events.map(() => top),
    colour: events.map((one) => colourOf(one.headline ? "event" : "event-other")),
  });
}

// Axes, text and cursors in the colours of the page; again when these change.
function paint() {
  const ink = colourOf("ink"), muted = colourOf("muted"), line = colourOf("line");
  const figures = ["map", "curves", "grid", "modes", "compare", ...run.figures.map((_, n) => `small-${n}`)];
  for (const figure of figures.filter((one) => document.getElementById(one))) {
    for (const side of ["x", "y"]) {
      named(`${figure}-${side}axis`).setv({
        axis_line_color: line, major_tick_line_color: line, major_label_text_color: muted, axis_label_text_color: muted,
      });
    }
    const cursor = named(`${figure}-cursor`);
    if (cursor) cursor.line_color = ink;
  }
}

const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(made.style, value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
};
const put = (id, ...children) => document.getElementById(id).replaceChildren(...children);
const gradient = (colours) => {
  const stops = [0, 1, 2, 3, 4, 5, 6, 7, 8].map((n) => colours[Math.round((n / 8) * (colours.length - 1))]);
  return element("span", { class: "ramp", style: { background: `linear-gradient(to right, ${stops.join(",")})` } });
};
const ramp = (low, colours, high, name) => element("span", {}, `${name} ${numberText(low)}`, gradient(colours), numberText(high));
