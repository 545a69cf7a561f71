// Everything together: controls, pointer and keys change the state; what depends on it is drawn again.

const get = (id) => document.getElementById(id);

function fillControls() {
  const options = (id, pairs) => put(id, ...pairs.map(([value, text]) => element("option", { value }, shortened(text, 60))));
  options("probe", series.map((one, n) => [n, seriesTitle(one)]));
  options("circuit", [...circuits.map((one) => [one, one]), ...(circuits.length > 1 ? [["all", "all circuits"]] : [])]);
  options("from", steps.map((step, n) => [n, stepText(step)]));
  get("step").max = steps.length - 1;
  get("probe").addEventListener("change", (event) => change({ probe: Number(event.target.value) }));
  get("circuit").addEventListener("change", (event) => {
    const circuit = event.target.value, fits = circuit === "all" || run.rows[state.row].circuit === circuit;
    change({ circuit, row: fits ? state.row : sameHeadIn(circuit) });
  });
  get("order").addEventListener("change", (event) => change({ order: event.target.value }));
  get("scale").addEventListener("change", (event) => change({ scale: event.target.value }));
  get("step").addEventListener("input", (event) => { change({ column: Number(event.target.value) }); sayCell(state.row, state.column); });
  get("difference").addEventListener("change", (event) => change({ from: event.target.checked ? Number(get("from").value) : null }));
  get("from").addEventListener("change", (event) => change({ from: Number(event.target.value) }));
  get("align")?.addEventListener("change", (event) => change({ align: event.target.value }));
  get("controls").addEventListener("submit", (event) => event.preventDefault());
}
function sameHeadIn(circuit) {
  const name = headName(run.rows[state.row]), rows = rowsOf(circuit);
  return rows.find((row) => headName(run.rows[row]) === name) ?? rows[0];
}

function showControls() {
  get("probe").value = state.probe;
  get("circuit").value = state.circuit;
  get("order").value = state.order;
  get("scale").value = state.scale;
  if (get("align")) get("align").value = state.align;
  get("step").value = state.column;
  get("step").setAttribute("aria-valuetext", `${run.step_unit} ${stepText(steps[state.column])}`);
  get("at").textContent = stepText(steps[state.column]);
  get("difference").checked = state.from !== null;
  if (state.from !== null) get("from").value = state.from;
}

// Only what a change is about is drawn again: the slider must not wait for the map.
function draw(now, before) {
  const changed = (...names) => !before || names.some((name) => now[name] !== before[name]);
  showControls();
  if (changed("probe", "circuit", "order", "scale")) drawMap();
  else if (changed("pins", "row", "column")) drawMarked();
  if (changed("probe", "circuit", "pins", "row")) drawCurves();
  else if (changed("column")) named("curves-cursor").location = logOf(steps[now.column]);
  if (changed("probe", "circuit", "pins", "row", "column", "from")) drawGrid();
  if (changed("probe", "circuit", "row", "align", "column")) drawCompare();
  if (changed("row")) drawModes();
  else if (changed("column") && get("modes")) named("modes-cursor").location = logOf(steps[now.column]);
}

function listenToPointer() {
  named("map").on_event("mousemove", ({ x, y }) => {
    const cell = cellAt(x, y);
    if (cell) sayCell(cell.row, cell.column);
  });
  named("map").on_event("tap", ({ x, y }) => {
    const cell = cellAt(x, y);
    if (!cell) return;
    state = { ...state, column: cell.column };
    togglePin(cell.row);
    drawMarked();
    showControls();
    sayCell(cell.row, cell.column);
  });
  named("curves").on_event("tap", ({ x }) => {
    const distances = steps.map((step) => Math.abs(logOf(step) - x));
    change({ column: distances.indexOf(Math.min(...distances)) });
  });
  named("grid").on_event("tap", ({ x, y }) => { const row = gridRowAt(x, y); if (row !== null) togglePin(row); });
  named("grid").on_event("mousemove", ({ x, y }) => { const row = gridRowAt(x, y); if (row !== null) sayCell(row, state.column); });
}

function listenToKeys() {
  const moved = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const listen = (id, move) => get(id).addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") togglePin(state.row);
    else if (event.key in moved) move(...moved[event.key]);
    else return;
    event.preventDefault();
    sayCell(state.row, state.column);
  });
  listen("map", (dx, dy) => {
    const place = Math.max(0, order.indexOf(state.row)) + dy;
    change({
      column: Math.min(steps.length - 1, Math.max(0, state.column + dx)),
      row: order[Math.min(order.length - 1, Math.max(0, place))],
    });
  });
  listen("grid", (dx, dy) => change({ row: gridNeighbour(state.row, dx, dy) }));
}

// "Show it": the event's probe and circuit, its step, its heads.
function showEvent(number) {
  const event = run.events.find((one) => one.number === number);
  const changes = { column: soundColumn(event.step) };
  if (event.series !== null) {
    Object.assign(changes, { probe: event.series, circuit: event.circuit, pins: event.rows.slice(0, PINS) });
    if (event.rows.length) changes.row = event.rows[0];
  }
  change(changes);
  get("map-section").scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  say(event.series === null ? `${event.title} is a metric: the cursor stands at its step.` : `Event ${number}: ${event.title}.`);
}

function listenToPage() {
  for (const button of document.querySelectorAll("[data-event]")) {
    if (hasView) button.addEventListener("click", () => showEvent(Number(button.dataset.event)));
    else button.remove();
  }
  for (const button of document.querySelectorAll("[data-csv]")) button.addEventListener("click", () => download(button.dataset.csv));
  for (const link of document.querySelectorAll("[data-scroll]")) {   // the fragment belongs to the view
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const target = get(link.getAttribute("href").slice(1));
      for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
      target.classList.add("lit");
      target.scrollIntoView({ block: "center" });
      target.focus({ preventScroll: true });
    });
  }
  get("copy").addEventListener("click", async () => {
    const text = get("verdict-text");
    try { await navigator.clipboard.writeText(text.value); }
    catch { text.select(); document.execCommand("copy"); }
    get("copied").textContent = "Copied.";
  });
}

function redraw() {
  paint();
  if (hasView) draw(state, null);
  drawSmall();
}

async function start() {
  listenToPage();
  await placeFigures();
  if (hasView) {
    fillControls();
    listeners.push(draw);
    listenToPointer();
    listenToKeys();
    addEventListener("hashchange", () => { state = fromFragment(location.hash); draw(state, null); });
    addEventListener("resize", () => { clearTimeout(start.waiting); start.waiting = setTimeout(() => drawMapAxes(order.length), 150); });
  }
  redraw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  matchMedia("print").addEventListener("change", (event) => {
    if (event.matches) for (const one of document.querySelectorAll("details")) one.open = true;   // paper cannot be clicked
    redraw();
  });
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";   // for whoever waits until the page can be used
}
start();
