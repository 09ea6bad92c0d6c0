// Tables: read what was pasted, with commas, semicolons or tabs between columns, and with or without a head.

const MAX_ROWS = 50000;
const DAY = 864e5; // milliseconds
const MONTHS = [[28, 31, 1], [89, 92, 3], [365, 366, 12]]; // from so many days to so many: months
const MISSING = new Set(["", "na", "nan", "n/a", "null", "none", "-", "?", "."]);

// Return the rows of a table as lists of texts.
function rowsOf(text) {
  const line = text.slice(0, 2000).split(/\r?\n/).find((each) => each.trim()) || "";
  const mark = ["\t", ";", ","].find((each) => line.includes(each)) || ",";
  if (!text.includes('"')) { // most tables, ten times as fast
    const lines = text.split("\n").filter((each) => each.trim());
    const long = lines.length > MAX_ROWS + 1; // the head and one row more than is read, which says so
    const read = long ? [lines[0], ...lines.slice(-MAX_ROWS - 1)] : lines;
    return { rows: read.map((each) => each.split(mark).map((cell) => cell.trim())), decimalComma: mark !== "," };
  }
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let at = 0; at < text.length; ++at) {
    const letter = text[at];
    if (quoted) {
      if (letter !== '"') cell += letter;
      else if (text[at + 1] === '"') cell += text[++at];
      else quoted = false;
    } else if (letter === '"' && !cell.trim()) {
      [quoted, cell] = [true, ""];
    } else if (letter === mark) {
      row.push(cell.trim());
      cell = "";
    } else if (letter === "\n") {
      row.push(cell.trim());
      if (row.length > 1 || row[0]) rows.push(row);
      [row, cell] = [[], ""];
    } else {
      cell += letter;
    }
  }
  row.push(cell.trim());
  if (row.length > 1 || row[0]) rows.push(row);
  return { rows, decimalComma: mark !== "," };
}

// Return a number; NaN if it is missing, undefined if it is none, or infinite.
function numberOf(text, decimalComma) {
  if (MISSING.has(text.toLowerCase())) return NaN;
  const number = Number(decimalComma ? text.replace(",", ".") : text);
  return Number.isFinite(number) ? number : undefined;
}

// Read a table: { names, columns: [[texts]], numbers(column) }. `uneven`: the first row with too few cells, or -1.
function tableOf(text) {
  const { rows, decimalComma } = rowsOf(text.replace(/^\ufeff/, ""));
  const cut = rows.length > MAX_ROWS + 1;
  const isData = (cell) => numberOf(cell, decimalComma) !== undefined || timeOf(cell) !== undefined;
  const wide = rows.reduce((most, row) => Math.max(most, row.length), 0);
  const head = rows.length > 0 && rows[0].every((cell) => !isData(cell) || cell === "") && rows[0].some((cell) => cell);
  const data = (head ? rows.slice(1) : rows).slice(-MAX_ROWS);
  const columns = Array.from({ length: wide }, (_, column) => data.map((row) => row[column] ?? ""));
  const unnamed = (column) => (wide > 1 ? `column ${column + 1}` : "value");
  const names = columns.map((_, column) => (head && rows[0][column]) || unnamed(column));
  const numbers = (column) => columns[column].map((cell) => numberOf(cell, decimalComma));
  const uneven = data.findIndex((row) => row.length < wide);
  return { names, columns, head, cut, uneven, rows: data.length, numbers };
}

// Return the milliseconds of a time such as 2026-01-31 or 2026-01-31T13:00; undefined if it is none.
function timeOf(text) {
  const match = /^(\d{4})-(\d\d?)(?:-(\d\d?))?(?:[T ](\d\d?):(\d\d)(?::(\d\d)(?:\.\d+)?)?)?Z?$/.exec(text);
  if (!match) return undefined;
  const [year, month, day = 1, hour = 0, minute = 0, second = 0] = match.slice(1);
  return Date.UTC(Number(year), month - 1, Number(day), Number(hour), Number(minute), Number(second));
}

// Whether times are about equally far apart, as months are.
function isRegular(texts) {
  const times = texts.map(timeOf), gap = times.at(-1) - times.at(-2), steps = (times.at(-1) - times[0]) / gap;
  return Math.abs(steps - (times.length - 1)) <= 0.1 * times.length;
}

// Return the times of `count` steps after times, as texts in their form; undefined if these are not regular times.
function timesAfter(texts, count) {
  const [before, last] = texts.slice(-2).map(timeOf);
  if (!(last > before)) return undefined;
  const gap = last - before, form = texts.at(-1);
  const [, , months] = MONTHS.find(([least, most]) => gap >= least * DAY && gap <= most * DAY) || [0, 0, 0];
  return Array.from({ length: count }, (_, step) => {
    const time = new Date(last);
    if (months) time.setUTCMonth(time.getUTCMonth() + months * (step + 1));
    else time.setTime(last + gap * (step + 1));
    const whole = time.toISOString().slice(0, 19).replace("T", form.includes("T") ? "T" : " ");
    if (form.length <= 10 && gap % DAY === 0) return whole.slice(0, form.length < 8 ? 7 : 10);
    return whole.slice(0, /:\d\d:/.test(form) ? 19 : 16);
  });
}
