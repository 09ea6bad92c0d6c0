// Series: reads a table, and forecasts the steps after its end.

const LEVELS = ["forecast", "low_80", "high_80", "low_95", "high_95"], ORDER = [2, 1, 3, 0, 4]; // among the quantiles
const OWN = "-1"; // scaled by its own values
const MAX_CHOICES = 500;
const NOTHING = "There are no numbers in it. Paste a column of numbers, or a table that has one, the oldest first.";

// Fill a field of choices; hide it if there is nothing to choose.
function choices(id, entries, chosen) {
  const option = ([value, text]) => element("option", { value, selected: String(value) === String(chosen) }, text);
  byId(id).replaceChildren(...entries.slice(0, MAX_CHOICES).map(option));
  byId(id).closest("label").hidden = entries.length < 2;
}

class Forecaster {
  constructor(model) {
    this.model = model;
    this.fan = new Fan(say);
    this.field = new Field("values", debounced(() => this.read(), 200));
    byId("file").addEventListener("change", async (event) => {
      const [file] = event.target.files;
      if (file) this.field.set(await file.text());
      this.read();
    });
    for (const id of ["column", "which", "scale"]) byId(id).addEventListener("change", () => this.forecast());
    byId("save").addEventListener("click", () => download("forecast.csv", "text/csv", this.csv()));
    const inputs = [...about.past, ...about.known, ...(about.calendar.length ? ["the calendar"] : [])].join(", ");
    const ahead = about.known.length ? ` Rows without a value can give ${about.known.join(", ")} in advance.` : "";
    byId("inputs").textContent = inputs && `The model also reads ${inputs}.${ahead}`;
    this.read();
  }

  read() {
    const { text } = this.field;
    this.clear();
    if (!text.trim()) return;
    this.table = tableOf(text);
    const { names, columns } = this.table, numeric = [...names.keys()].filter((column) => this.isNumeric(column));
    if (!numeric.length) return void complain(NOTHING);
    const target = numeric.find((column) => names[column] === about.target) ?? numeric.at(-1);
    choices("column", numeric.map((column) => [column, names[column]]), target);
    const id = about.id ? names.indexOf(about.id) : -1;
    this.id = id < 0 ? undefined : id;
    const series = this.id === undefined ? [""] : [...new Set(columns[this.id])];
    choices("which", series.map((name) => [name, name || "all rows"]));
    const isTime = (cells) => cells.length > 1 && cells.slice(-20).every((cell) => timeOf(cell) !== undefined);
    this.time = columns.findIndex(isTime);
    this.forecast();
  }

  // Whether at least half of what is in a column are numbers.
  isNumeric(column) {
    const known = this.table.numbers(column).filter((value) => value !== undefined && !Number.isNaN(value)).length;
    return known > 0 && 2 * known >= this.table.columns[column].filter((cell) => cell).length;
  }

  clear() {
    this.fail("");
    for (const id of ["column", "which", "scale"]) byId(id).closest("label").hidden = true;
  }

  // Show why there is no forecast, in its place.
  fail(text) {
    this.quantiles = this.fan.quantiles = undefined;
    byId("result").hidden = true;
    byId("empty").hidden = false;
    complain(text);
  }

  // Take the rows of the chosen series, and return what should be known about them.
  choose(name, column) {
    const { table } = this, numbers = table.numbers(column), all = [...numbers.keys()], notes = [];
    const rows = this.id === undefined ? all : all.filter((row) => table.columns[this.id][row] === name);
    const wrong = rows.filter((row) => numbers[row] === undefined);
    this.values = rows.map((row) => numbers[row] ?? NaN);
    while (this.values.length && Number.isNaN(this.values.at(-1))) this.values.pop();
    const times = this.time < 0 ? undefined : rows.map((row) => table.columns[this.time][row]);
    this.rows = rows;
    this.times = times?.slice(0, this.values.length);
    if (wrong.length) {
      const row = wrong[0] + 1 + Number(table.head), cell = table.columns[column][wrong[0]].slice(0, 30);
      const without = `${counted(wrong.length, "row")} without a number`;
      notes.push(`${without}, such as row ${row} with \u201c${cell}\u201d: read as missing.`);
    }
    if (this.times && !isRegular(this.times)) notes.push("The times are not regular: each row is read as one step.");
    if (table.cut) notes.push(`This is long: the last ${MAX_ROWS.toLocaleString("en")} rows are read.`);
    return notes;
  }

  forecast() {
    const name = byId("which").value, notes = this.choose(name, Number(byId("column").value));
    if (this.values.length < 2) return void this.fail("The series must have two values or more.");
    this.chooseScale(name);
    const scale = byId("scale").value, own = scale === OWN, { season, horizon } = this.model.numbers;
    if (own && this.values.length < MIN_SPAN) notes.push("The series is short: its scale is uncertain.");
    this.after = this.times && timesAfter(this.times, horizon);
    const inputs = this.inputs(notes);
    complain(notes.join("\n"));
    try {
      this.quantiles = this.model.forecast(this.values, own ? ownScaling(this.values, season) : Number(scale), inputs);
    } catch (error) {
      return void this.fail(`It cannot be forecast: ${error.message}.`);
    }
    const all = [...this.quantiles.flat(), ...this.values.filter((value) => !Number.isNaN(value))];
    const [low, high] = [Math.min, Math.max].map((most) => all.reduce((a, b) => most(a, b)));
    if (!Number.isFinite(high - low)) {
      return void this.fail("The forecast is not finite: these values are far from those in training.");
    }
    byId("empty").hidden = true;
    byId("result").hidden = false;
    this.whens = this.after || Array.from({ length: horizon }, (_, step) => String(this.values.length + step));
    const before = this.times || this.values.map((_, step) => String(step));
    this.fan.set(this.values, this.quantiles, [...before, ...this.whens]);
    this.fillTable();
  }

  // Return the inputs beside the values, if the model has any; add a note on those that are not in the table.
  inputs(notes) {
    const { past, known } = this.model.numbers, times = this.after && [...this.times, ...this.after];
    if (!(past + known)) return undefined;
    const given = { table: this.table, rows: this.rows, count: this.values.length, times };
    const { inputs, missing } = windowInputs(this.model, given);
    if (missing.length) notes.push(`The table does not have ${missing.join(", ")}: taken at the mean.`);
    return inputs;
  }

  // A series of training is scaled as it was there; another one by its own values.
  chooseScale(name) {
    byId("scale").closest("label").hidden = false;
    if (this.scaledFor === name && byId("scale").options.length) return;
    this.scaledFor = name;
    const only = about.series.length === 1 && this.id === undefined;
    const trained = about.series.map((each, number) => [number, each || "the series of training"]);
    choices("scale", [[OWN, "its own values"], ...trained], only ? 0 : about.series.indexOf(name));
  }

  get names() {
    return [this.after ? "time" : "step", ...LEVELS];
  }

  forecastRows() {
    return this.whens.map((when, step) => [when, ...ORDER.map((level) => this.quantiles[step][level])]);
  }

  fillTable() {
    const head = this.names.map((name) => element("th", { scope: "col" }, name.replace(/_(\d+)/, " of $1 %")));
    const body = this.forecastRows().map(([when, ...values]) => element(
      "tr", {}, element("th", { scope: "row" }, when), ...values.map((value) => element("td", {}, shortNumber(value))),
    ));
    byId("table").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  }

  csv() {
    const cell = (value) => (typeof value === "number" ? String(Number(value.toPrecision(8))) : value);
    return [this.names, ...this.forecastRows()].map((row) => `${row.map(cell).join(",")}\n`).join("");
  }
}

let forecaster;
begin((model) => (forecaster = new Forecaster(model)));
