// The map: a row for every matrix, a column for every checkpoint.

let order = [];        // rows from the top, as they are shown
let mapLook = null;    // low, high and palette of the colours

// The step of the first event in which a row takes part, for the order by event time.
const eventStep = new Map();
for (const event of run.events) {
  for (const row of event.rows) eventStep.set(row, Math.min(event.step, eventStep.get(row) ?? Infinity));
}

function rowOrder(probe) {
  const rows = rowsOf(state.circuit);
  if (state.order === "event") {
    return rows.sort((a, b) => (eventStep.get(a) ?? Infinity) - (eventStep.get(b) ?? Infinity) || a - b);
  }
  if (state.order === "change") {
    const size = new Map(rows.map((row) => [row, spread(probe.values.row(row))]));
    return rows.sort((a, b) => size.get(b) - size.get(a) || a - b);
  }
  return rows;
}
function zScores(values) {
  let count = 0, sum = 0, squares = 0;
  for (const one of values) if (one === one) { count++; sum += one; }
  const mean = sum / count;
  for (const one of values) if (one === one) squares += (one - mean) ** 2;
  const deviation = Math.sqrt(squares / count);
  return values.map((one) => (deviation > 0 ? (one - mean) / deviation : one === one ? 0 : NaN));
}
const shownRow = (probe, row) => (state.scale === "z" ? zScores(probe.values.row(row)) : probe.values.row(row));

function drawMap() {
  const probe = series[state.probe], columns = steps.length;
  order = rowOrder(probe);
  const count = order.length, cells = new Float32Array(count * columns);
  order.forEach((row, place) => {
    const values = shownRow(probe, row), start = (count - 1 - place) * columns;  // Bokeh begins at the bottom
    for (let i = 0; i < columns; i++) cells[start + i] = values[i];
  });
  const known = cells.filter((one) => one === one).sort();
  mapLook = state.scale === "z" ? { low: -3, high: 3, palette: palettes.z }
    : { low: known.length ? quantile(known, 0.01) : 0, high: known.length ? quantile(known, 0.99) : 1, palette: palettes.raw };
  if (!(mapLook.high > mapLook.low)) mapLook = { ...mapLook, low: mapLook.low - 0.5, high: mapLook.low + 0.5 };
  named("map-colours").setv({ low: mapLook.low, high: mapLook.high, palette: mapLook.palette });
  const figure = named("map"), height = Math.max(170, Math.min(640, 90 + 16 * count));
  if (figure.height !== height) figure.height = height;
  range("map", "x", -0.012 * columns - 0.1, columns);
  range("map", "y", 0, count * (1 + 27 / (height - 75)));   // room for the numbers of events above
  fill("map-cells", { image: [ndarray(cells, [count, columns])], x: [0], y: [0], dw: [columns], dh: [count] });
  drawHatching(probe, count);
  drawMapAxes(count);
  drawMapEvents(count);
  drawMarked();
  sayMap(probe);
}

// Which columns could not be searched for this probe, in any circuit that is shown; which the audit condemns.
function unsearched(probe, column) {
  const shown = state.circuit === "all" ? circuits : [state.circuit];
  return !shown.some((one) => (probe.searched[one] || []).some(([low, high]) => steps[column] >= low && steps[column] <= high));
}
function drawHatching(probe, count) {
  const data = { x: [], top: [], width: [], pattern: [], colour: [], alpha: [] };
  const add = (start, end, pattern, colour, alpha) => {
    data.x.push((start + end) / 2); data.width.push(end - start); data.top.push(count);
    data.pattern.push(pattern); data.colour.push(colour); data.alpha.push(alpha);
  };
  let start = null;
  for (let i = 0; i <= steps.length; i++) {
    const open = i < steps.length && unsearched(probe, i);
    if (open && start === null) start = i;
    if (!open && start !== null) { add(start, i, "right_diagonal_line", colourOf("ink"), 0.4); start = null; }
    if (i < steps.length && steps[i] in run.condemned) add(i, i + 1, "diagonal_cross", colourOf("warn"), 0.95);
  }
  fill("map-hatched", data);
}

function drawMapAxes(count) {
  const width = document.getElementById("map").clientWidth, most = Math.max(3, Math.floor(width / 75));
  const every = Math.max(1, Math.ceil(steps.length / most)), columns = [];
  for (let i = 0; i < steps.length; i += every) columns.push(i);
  ticks("map", "x", columns.map((one) => one + 0.5), columns.map((one) => compact(steps[one])));
  named("map-xaxis").axis_label = `${run.step_unit} (one column per checkpoint)`;
  const places = [], labels = [];
  const each = (skip) => order.forEach((row, place) => {
    if (place % skip === 0) { places.push(count - place - 0.5); labels.push(shortened(rowName(row), 22)); }
  });
  if (count <= 60 || state.order !== "layer") each(Math.ceil(count / 40));
  else {
    const starts = order.map((row, place) => [row, place]).filter(([row, place]) => place === 0
      || ["circuit", "tower", "layer"].some((key) => run.rows[row][key] !== run.rows[order[place - 1]][key]));
    const skip = Math.ceil(starts.length / 26);
    starts.forEach(([row, place], n) => {
      if (n % skip) return;
      const { circuit, tower, layer } = run.rows[row];
      places.push(count - place - 0.5); labels.push(shortened(`${circuit} ${tower ? tower + " " : ""}layer ${layer}`, 22));
    });
  }
  ticks("map", "y", places, labels);
}

function drawMapEvents(count) {
  const pixel = (count * 1.1) / Math.max(60, named("map").height - 60), events = run.events, thin = steps.length * 0.0009;
  const at = (step) => columnOf(step) + 0.5, colours = events.map((one) => colourOf(one.headline ? "event" : "event-other"));
  fill("map-events", {   // a bar over its stretch above the map, a line through it where it is fastest
    left: [...events.map((one) => at(one.low)), ...events.map((one) => at(one.step) - thin)],
    right: [...events.map((one) => at(one.high)), ...events.map((one) => at(one.step) + thin)],
    bottom: [...events.map(() => count + 2 * pixel), ...events.map(() => 0)],
    top: [...events.map(() => count + 6 * pixel), ...events.map(() => count + 2 * pixel)],
    colour: [...colours, ...colours],
  });
  fill("map-event-names", {
    x: events.map((one) => at(one.step)), y: events.map(() => count + 7 * pixel),
    text: events.map((one) => String(one.number)), colour: colours,
  });
}

const pinColour = (row) => palettes.pins[state.pins.indexOf(row) % palettes.pins.length];

// Pinned rows have their colour in the margin; the row in hand has a frame.
function drawMarked() {
  const count = order.length, margin = 0.012 * steps.length, place = new Map(order.map((row, n) => [row, count - n - 0.5]));
  const pins = state.pins.filter((row) => place.has(row)), thick = Math.max(0.9, count / 90);
  const here = place.has(state.row) ? [state.row] : [];
  fill("map-marked", {
    x: [...pins.map(() => -margin / 2), ...here.map(() => steps.length / 2)],
    y: [...pins, ...here].map((row) => place.get(row)),
    width: [...pins.map(() => margin * 0.6), ...here.map(() => steps.length)],
    height: [...pins.map(() => thick * 0.8), ...here.map(() => Math.max(1, count / 140))],
    colour: [...pins.map(pinColour), ...here.map(() => colourOf("ink"))],
  });
  named("map-cursor").location = state.column + 0.5;
}

function sayMap(probe) {
  const shown = state.scale === "z" ? "z-score of each row" : seriesTitle(probe);
  const legend = [ramp(mapLook.low, mapLook.palette, mapLook.high, shown)];
  const hatched = steps.filter((_, i) => unsearched(probe, i)).length, condemned = Object.keys(run.condemned).length;
  if (hatched) legend.push(element("span", {}, element("span", { class: "hatch" }), "a change there could not have been seen"));
  if (condemned) legend.push(element("span", {}, element("span", { class: "cross" }), "condemned by the audit"));
  put("map-legend", ...legend);
  put("meaning", `${seriesTitle(probe)}: ${probe.meaning}`);
  const orders = { layer: "by layer", event: "by the step of the first event they take part in", change: "by how far they moved, the most first" };
  let said = `${counted(order.length, "row")} ${orders[state.order]}, ${counted(steps.length, "checkpoint")}. `;
  const refused = Object.entries(probe.not_searched);
  if (hatched === steps.length) said += `Nothing here could be searched${refused.length ? `: ${refused[0][1]}` : ""}.`;
  else if (hatched) said += `${counted(hatched, "checkpoint")} could not be searched for events of this probe.`;
  put("map-said", said);
}

// The row and column under a point of the map; null beside it.
function cellAt(x, y) {
  const column = Math.floor(x), place = order.length - 1 - Math.floor(y);
  if (place < 0 || place >= order.length || column >= steps.length) return null;
  return { row: order[place], column: Math.max(0, column) };
}

function sayCell(row, column) {
  const probe = series[state.probe], value = probe.values.row(row)[column];
  const where = `${rowName(row)}, ${run.step_unit} ${stepText(steps[column])}: `;
  const condemned = run.condemned[steps[column]];
  let text = where + (value === value ? `${seriesTitle(probe)} ${numberText(value)}` : `no number, ${whyMissing(state.probe, row, column)}`);
  if (condemned) text += `. Condemned by the audit: ${condemned}`;
  else if (unsearched(probe, column)) text += ". A change here could not have been seen";
  say(shortened(text, 600) + ".");
}
