// What the page knows, read from its JSON: packed numbers unpacked (packing.py writes them), names, formats.
"use strict";

const MISSING = 65535, STEPS = 65534;
const readJson = (id) => JSON.parse(document.getElementById(id).textContent);
const page = readJson("page-data");
const palettes = readJson("page-palettes");
const run = page.runs[0];

function bytesOf(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes.buffer;
}

// Rows of numbers over `columns` checkpoints, unpacked when a row is first asked for.
class Packed {
  constructor({ codes, scales, logs }, columns) {
    this.codes = new Uint16Array(bytesOf(codes));
    this.scales = new Float64Array(bytesOf(scales));
    this.logs = logs;
    this.columns = columns;
    this.rows = new Map();
  }
  row(number) {
    if (!this.rows.has(number)) {
      const low = this.scales[2 * number], width = (this.scales[2 * number + 1] - low) / STEPS;
      const start = number * this.columns, isLog = this.logs[number] === "1";
      const values = new Float64Array(this.columns);
      for (let i = 0; i < this.columns; i++) {
        const code = this.codes[start + i], value = low + width * code;
        values[i] = code === MISSING ? NaN : isLog ? Math.exp(value) : value;
      }
      this.rows.set(number, values);
    }
    return this.rows.get(number);
  }
}

const steps = run.steps;
const series = run.series.map((one) => ({ ...one, values: new Packed(one.values, steps.length) }));
const modes = Object.fromEntries(
  Object.entries(run.modes).map(([name, packed]) => [name, new Packed(packed, steps.length)]));
const modeCount = modes.mode_amplitude && run.rows.length
  ? modes.mode_amplitude.logs.length / run.rows.length : 0;
const circuits = [...new Set(run.rows.map((row) => row.circuit))];
const bands = page.bands.map((band) => ({
  ...band, quantiles: Object.fromEntries(
    Object.entries(band.quantiles).map(([key, packed]) => [key, new Packed(packed, band.steps.length)])),
}));

// Why a number is missing, by "series,column": [[reason, set of rows, or null for all], ...].
const missing = new Map();
for (const { series: s, column, reason, rows } of run.missing) {
  const key = `${s},${column}`;
  if (!missing.has(key)) missing.set(key, []);
  missing.get(key).push([run.reasons[reason], rows.length ? new Set(rows) : null]);
}
function whyMissing(s, row, column) {
  const found = (missing.get(`${s},${column}`) || []).find(([, rows]) => rows === null || rows.has(row));
  return found ? found[0] : "there is no number";
}

const headName = (row) => `${row.tower ? row.tower + ":" : ""}${row.layer}.${row.head}`;
const rowName = (number) => `${run.rows[number].circuit} ${headName(run.rows[number])}`;
const seriesTitle = (one) => one.name.replaceAll("_", " ");
const shortened = (text, most = 40) => (text.length > most ? text.slice(0, most - 1) + "…" : text);

function numberText(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e5 || size < 1e-3)) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}
const counted = (count, what) => `${count.toLocaleString("en-US")} ${what}${count === 1 ? "" : "s"}`;
const stepText = (step) => Math.round(step).toLocaleString("en-US");

// Checkpoints stand side by side in the map: where a step lies between them.
function columnOf(step) {
  if (step <= steps[0]) return 0;
  for (let i = 1; i < steps.length; i++) {
    if (step <= steps[i]) return i - 1 + (step - steps[i - 1]) / (steps[i] - steps[i - 1]);
  }
  return steps.length - 1;
}
const nearestColumn = (step) => steps.reduce(
  (best, one, i) => (Math.abs(one - step) < Math.abs(steps[best] - step) ? i : best), 0);

// Curves are over log10(step); step 0 stands a little to the left of the first other one.
const firstPositive = steps.find((step) => step > 0) || 1;
const logOf = (step) => (step > 0 ? Math.log10(step) : Math.log10(firstPositive) - 0.3);

function quantile(sorted, share) {
  const place = (sorted.length - 1) * share, low = Math.floor(place), high = Math.ceil(place);
  return sorted[low] + (sorted[high] - sorted[low]) * (place - low);
}
