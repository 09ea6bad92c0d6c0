// Series: reads a table, forecasts the steps after its end, and draws the fan.

const HISTORY = 4; // horizons of history in the picture
const LEVELS = ["forecast", "low_80", "high_80", "low_95", "high_95"], ORDER = [2, 1, 3, 0, 4]; // among the quantiles
const OWN = "-1"; // scaled by its own values
const NS = "svg:";

function fill(id, entries, chosen) {
  byId(id).replaceChildren(...entries.map(([value, text]) => element("option", { value, selected: String(value) === String(chosen) }, text)));
  byId(id).closest("label").hidden = entries.length < 2;
}

function shortNumber(value) {
  return Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3) ? value.toExponential(2) : Number(value.toPrecision(5)).toLocaleString("en", { maximumSignificantDigits: 5 });
}

// The scaling of a series that the model was not trained on: that of its own values (`Scaling.of` in Python).
function ownScaling(values, season) {
  let last = values.find((value) => !Number.isNaN(value));
  const filled = values.map((value) => (last = Number.isNaN(value) ? last : value));
  const low = filled.reduce((a, b) => Math.min(a, b)), middle = [...filled].sort((a, b) => a - b), half = middle.length >> 1;
  const median = middle.length % 2 ? middle[half] : (middle[half - 1] + middle[half]) / 2;
  const floor = low > 0 && low >= 0.01 * median ? low / 10 : 0;
  const scaled = floor ? filled.map((value) => Math.log(Math.max(value, floor))) : filled;
  const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;
  const deviation = (list, centre = mean(list)) => Math.sqrt(mean(list.map((value) => (value - centre) ** 2)));
  const span = Math.max(season, 8), first = Math.min(scaled.length - 1, span);
  const sums = [0];
  for (const value of scaled) sums.push(sums.at(-1) + value);
  const away = scaled.slice(first).map((value, place) => {
    const end = first + place + 1, from = Math.max(end - span, 0);
    return value - (sums[end] - sums[from]) / (end - from);
  });
  const spread = deviation(away) || deviation(scaled) || 1;
  return { floor, centre: mean(scaled), unit: floor && about.log_unit ? about.log_unit : spread, least: low >= 0 ? 0 : -Infinity, width: 1 };
}

class Forecaster {
  constructor(model) {
    this.model = model;
    byId("values").addEventListener("input", debounced(() => this.read(), 200));
    byId("file").addEventListener("change", async (event) => {
      const [file] = event.target.files;
      if (file) byId("values").value = await file.text();
      this.read();
    });
    for (const id of ["column", "which", "scale"]) byId(id).addEventListener("change", () => this.forecast());
    byId("save").addEventListener("click", () => download("forecast.csv", "text/csv", this.csv()));
    const chart = byId("chart");
    chart.addEventListener("pointermove", (event) => this.point(event));
    chart.addEventListener("keydown", (event) => this.arrow(event));
    new ResizeObserver(() => this.quantiles && this.draw()).observe(byId("picture"));
    if (about.inputs.length) byId("inputs").textContent = `In training the model also read ${about.inputs.join(", ")}; this page takes these at their means.`;
    this.read();
  }

  read() {
    const text = byId("values").value;
    complain();
    this.clear();
    if (!text.trim()) return void fill("column", []);
    this.table = tableOf(text);
    const { names, columns } = this.table;
    const numeric = names.map((_, column) => column).filter((column) => {
      const known = this.table.numbers(column).filter((value) => value !== undefined && !Number.isNaN(value)).length;
      return known > 0 && 2 * known >= columns[column].filter((cell) => cell).length;
    });
    if (!numeric.length) return void complain("There are no numbers in it. Paste a column of numbers, or a table with one: values in rows, the oldest first.");
    const target = numeric.find((column) => names[column] === about.target) ?? numeric.at(-1);
    fill("column", numeric.map((column) => [column, names[column]]), target);
    const id = names.indexOf(about.id);
    this.id = about.id && id >= 0 ? id : undefined;
    const series = this.id === undefined ? [""] : [...new Set(columns[this.id])];
    fill("which", series.slice(0, 500).map((name) => [name, name || "all rows"]));
    this.time = columns.findIndex((cells) => cells.length > 1 && cells.slice(-20).every((cell) => timeOf(cell) !== undefined));
    this.forecast();
  }

  clear() {
    this.quantiles = undefined;
    byId("result").hidden = true;
    byId("empty").hidden = false;
    for (const id of ["which", "scale"]) byId(id).closest("label").hidden = true;
  }

  // Choose the rows and the scaling, and forecast.
  forecast() {
    const { table } = this, name = byId("which").value, column = Number(byId("column").value);
    const rows = table.columns[0].map((_, row) => row).filter((row) => this.id === undefined || table.columns[this.id][row] === name);
    const numbers = table.numbers(column), wrong = rows.filter((row) => numbers[row] === undefined);
    this.values = rows.map((row) => numbers[row] ?? NaN);
    while (this.values.length && Number.isNaN(this.values.at(-1))) this.values.pop();
    this.times = this.time < 0 ? undefined : rows.map((row) => table.columns[this.time][row]).slice(0, this.values.length);
    const notes = wrong.length ? [`${counted(wrong.length, "row")} without a number, such as row ${wrong[0] + 1 + Number(table.head)} with \u201c${table.columns[column][wrong[0]].slice(0, 30)}\u201d: read as missing.`] : [];
    if (table.cut) notes.push(`This is long: the last ${MAX_ROWS.toLocaleString("en")} rows are read.`);
    if (this.values.length < 2) return void complain("The series must have two values or more.");
    this.chooseScale(name);
    const scale = byId("scale").value;
    if (scale === OWN && this.values.length < 8) notes.push("The series is short: its scale is uncertain.");
    complain(notes.join("\n"));
    try {
      this.quantiles = this.model.forecast(this.values, scale === OWN ? ownScaling(this.values, this.model.numbers.season) : Number(scale));
    } catch (error) {
      return void complain(`It cannot be forecast: ${error.message}.`);
    }
    if (!this.quantiles.flat().every(Number.isFinite)) return void complain("The forecast is not finite: these values are far from those in training.");
    byId("empty").hidden = true;
    byId("result").hidden = false;
    this.pointed = this.shownHistory().length;
    this.draw();
    this.fillTable();
  }

  // A series of training is scaled as it was there; another one by its own values.
  chooseScale(name) {
    const number = about.series.indexOf(name), key = `${name} ${about.series.length}`;
    if (this.scaledFor === key && byId("scale").options.length) return void (byId("scale").closest("label").hidden = false);
    this.scaledFor = key;
    const only = about.series.length === 1 && this.id === undefined;
    fill("scale", [[OWN, "its own values"], ...about.series.slice(0, 500).map((each, place) => [place, each || "the series of training"])], only ? 0 : number);
  }

  shownHistory() {
    const horizons = byId("picture").clientWidth < 560 ? HISTORY / 2 : HISTORY;
    return this.values.slice(-Math.max(horizons * this.quantiles.length, 24));
  }

  labels() {
    const count = this.quantiles.length, after = this.times && timesAfter(this.times, count);
    return after || Array.from({ length: count }, (_, step) => String(this.values.length + step));
  }

  draw() {
    const history = this.shownHistory(), { quantiles } = this, count = history.length + quantiles.length;
    const width = Math.max(byId("picture").clientWidth, 280), height = Math.min(Math.max(0.4 * width, 240), 400);
    const all = [...history.filter((value) => !Number.isNaN(value)), ...quantiles.flat()];
    const [low, high] = [Math.min(...all), Math.max(...all)], room = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
    const left = 58, bottom = 26;
    this.x = (step) => left + ((width - left - 8) * step) / (count - 1);
    const y = (value) => 10 + ((height - bottom - 10) * (high + room - value)) / (high - low + 2 * room);
    const path = (points) => points.map(([step, value], number) => `${number ? "L" : "M"}${this.x(step).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const start = history.length - 1, level = (number) => [[start, history.at(-1)], ...quantiles.map((row, step) => [start + 1 + step, row[number]])];
    const known = history.map((value, step) => [step, value]).filter(([, value]) => !Number.isNaN(value));
    const band = (a, b) => element(NS + "path", { class: "band", d: `${path([...level(b), ...level(a).reverse()])}Z` });
    const grid = roundValues(low - room, high + room).flatMap((value) => [
      element(NS + "line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }),
      element(NS + "text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, shortNumber(value)),
    ]);
    const labels = this.labels(), past = this.times ? this.times.slice(-history.length) : history.map((_, step) => String(this.values.length - history.length + step));
    this.whens = [...past, ...labels];
    const ends = [[0, "start"], ...(width > 560 ? [[start, "middle"]] : []), [count - 1, "end"]];
    const marks = ends.map(([step, anchor]) => element(NS + "text", { x: this.x(step), y: height - 6, "text-anchor": anchor }, this.whens[step]));
    this.head = element(NS + "line", { class: "now", y1: 6, y2: height - bottom });
    byId("chart").setAttribute("viewBox", `0 0 ${width} ${height}`);
    byId("chart").replaceChildren(
      ...grid, ...marks, band(0, 4), band(1, 3), element(NS + "path", { class: "line", d: path(known) }),
      element(NS + "path", { class: "line median", d: path(level(2)) }), this.head,
    );
    this.show(this.pointed);
  }

  // Say what is at a step of the picture.
  show(step) {
    const history = this.shownHistory();
    this.pointed = Math.min(Math.max(step, 0), history.length + this.quantiles.length - 1);
    for (const end of ["x1", "x2"]) this.head.setAttribute(end, this.x(this.pointed));
    const row = this.quantiles[this.pointed - history.length], value = history[this.pointed];
    const told = row ? `${shortNumber(row[2])}; 80 %: ${shortNumber(row[1])} to ${shortNumber(row[3])}; 95 %: ${shortNumber(row[0])} to ${shortNumber(row[4])}`
      : Number.isNaN(value) ? "missing" : shortNumber(value);
    say(`${this.whens[this.pointed]}: ${told}`);
  }

  point(event) {
    const box = byId("chart").getBoundingClientRect(), count = this.shownHistory().length + this.quantiles.length;
    const share = (event.clientX - box.left - this.x(0)) / (this.x(count - 1) - this.x(0));
    this.show(Math.round(share * (count - 1)));
  }

  arrow(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!by) return;
    event.preventDefault();
    this.show(this.pointed + by);
  }

  rows() {
    return this.labels().map((when, step) => [when, ...ORDER.map((level) => this.quantiles[step][level])]);
  }

  get names() {
    return [this.times && timesAfter(this.times, 1) ? "time" : "step", ...LEVELS];
  }

  fillTable() {
    const cell = (name, value) => element(name, {}, typeof value === "number" ? shortNumber(value) : value);
    byId("table").replaceChildren(
      element("thead", {}, element("tr", {}, ...this.names.map((name) => element("th", { scope: "col" }, name.replace(/_(\d+)/, " of $1 %"))))),
      element("tbody", {}, ...this.rows().map(([when, ...values]) => element("tr", {}, element("th", { scope: "row" }, when), ...values.map((value) => cell("td", value))))),
    );
  }

  csv() {
    const quoted = (value) => (typeof value === "number" ? String(Number(value.toPrecision(8))) : /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
    return [this.names, ...this.rows()].map((row) => row.map(quoted).join(",") + "\n").join("");
  }
}

// At most six round numbers from `low` to `high`.
function roundValues(low, high) {
  const size = 10 ** Math.floor(Math.log10((high - low) / 5)), step = size * ([1, 2, 5].find((factor) => (high - low) / (size * factor) <= 5) || 10);
  const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
  return Array.from({ length: Math.max(Math.min(count, 8), 0) }, (_, number) => (first + number) * step);
}

let forecaster;
begin((model) => (forecaster = new Forecaster(model)));
