// Labels of sequences of numbers: paste one, a step in each row; chances as the model reads.

class SequenceLabels {
  constructor(model) {
    this.model = model;
    this.reading = new Reading(model, "step");
    const columns = about.columns.join(", ");
    byId("columns").textContent = about.wide ? "All numbers are one sequence." : `Columns: ${columns}.`;
    byId("values").placeholder = about.wide ? "0.1, 0.5, 0.4, ..." : about.columns.join(",");
    this.field = new Field("values", debounced(() => this.read(), 200));
    this.read();
  }

  // Return the rows of numbers that a step has, or undefined after saying what is wrong.
  rows(text) {
    if (about.wide) {
      const cells = text.split(/[\s,;]+/).filter((cell) => cell);
      const wrong = cells.find((cell) => numberOf(cell) === undefined)?.slice(0, 30);
      if (wrong !== undefined) return void complain(`A sequence has numbers only; \u201c${wrong}\u201d is none.`);
      return cells.map((cell) => [numberOf(cell)]);
    }
    const table = tableOf(text), { columns: names } = about;
    const places = names.map((name, number) => (table.head ? table.names.indexOf(name) : number));
    const missing = names.filter((_, number) => places[number] < 0 || places[number] >= table.columns.length);
    const needed = `Each row must have ${counted(names.length, "number")}: ${names.join(", ")}.`;
    if (missing.length) return void complain(`${needed} Missing: ${missing.join(", ")}.`);
    if (!table.head && table.names.length > names.length) {
      return void complain(`${needed} There are ${table.names.length} columns, and no head that names them.`);
    }
    if (!table.rows) return void complain("There are no numbers in it.");
    const uneven = table.uneven + 1 + Number(table.head);
    if (table.uneven >= 0) return void complain(`Row ${uneven} has fewer cells than others.`);
    const columns = places.map((place) => table.numbers(place));
    const wrong = columns[0].findIndex((_, row) => columns.some((column) => column[row] === undefined));
    if (wrong >= 0) return void complain(`Row ${wrong + 1 + Number(table.head)} has something that is not a number.`);
    return columns[0].map((_, row) => columns.map((column) => column[row]));
  }

  async read() {
    const { text } = this.field;
    complain();
    const rows = text.trim() ? this.rows(text) : [];
    if (!rows || !rows.length) return void this.reading.clear();
    for (let row = 1; row < rows.length; ++row) // a missing value is the one before it
      rows[row].forEach((value, column) => { if (Number.isNaN(value)) rows[row][column] = rows[row - 1][column]; });
    const read = rows.slice(-about.context);
    if (read.length < rows.length) complain(`This is long: the model reads the last ${counted(read.length, "step")}.`);
    await this.reading.read(read.map((row) => this.model.scaled(row)));
  }
}

let labels;
begin((model) => (labels = new SequenceLabels(model)));
