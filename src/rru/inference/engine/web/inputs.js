// The inputs of a series beside its values: other columns of the table, and the calendar, as in Python.

// Return the columns of inputs, [[numbers]], for rows of a table and `after` steps without a row; NaN is missing.
function inputColumns(table, rows, after) {
  const place = (name) => (table.head ? table.names.indexOf(name) : -1);
  return [...about.past, ...about.known].flatMap((name) => {
    const column = place(name), levels = about.levels[name];
    const rest = Array(after).fill(NaN), cells = column < 0 ? undefined : rows.map((row) => table.columns[column][row]);
    const isLevel = (level) => rows.map((_, number) => (cells ? Number(cells[number] === level) : NaN));
    if (levels) return levels.map((level) => [...isLevel(level), ...rest]);
    const numbers = column < 0 ? undefined : table.numbers(column);
    let last = NaN; // a missing number is the one before it
    return [[...rows.map((row) => (last = Number.isFinite(numbers?.[row]) ? numbers[row] : last)), ...rest]];
  });
}

// Return the column of an input that is made of the times, such as `hour sin` or `weekday 3`.
function calendarColumn(name, times) {
  const [part, which] = name.split(" ");
  return times.map((text) => {
    const time = timeOf(text), days = Math.floor(time / DAY), date = new Date(time);
    if (time === undefined) return NaN;
    if (part === "weekday") return Number((days + 3) % 7 === Number(which)); // 1970 began on a Thursday
    const year = days - Date.UTC(date.getUTCFullYear(), 0, 1) / DAY;
    const turn = 2 * Math.PI * (part === "hour" ? (time - days * DAY) / DAY : year / 365.25);
    return which === "sin" ? Math.sin(turn) : Math.cos(turn);
  });
}

// Return the inputs of the last window of `count` values and the steps after it, row by row; and what is not there.
function windowInputs(model, { table, rows, count, times }) {
  const { context, horizon } = model.numbers, steps = count + horizon;
  const columns = inputColumns(table, rows.slice(0, steps), Math.max(steps - rows.length, 0));
  const missing = [...about.past, ...about.known].filter((name) => !table.head || !table.names.includes(name));
  if (about.calendar.length && !times) missing.push("the times");
  columns.push(...about.calendar.map((name) => (times ? calendarColumn(name, times) : Array(steps).fill(NaN))));
  if (about.known.length && !missing.length && rows.length < steps) {
    missing.push(`${about.known.join(", ")} of ${counted(steps - rows.length, "step")} to be forecast`);
  }
  const window = Array.from({ length: context + horizon }, (_, step) => Math.max(step + count - context, 0));
  return { inputs: Float32Array.from(window.flatMap((step) => columns.map((column) => column[step]))), missing };
}
