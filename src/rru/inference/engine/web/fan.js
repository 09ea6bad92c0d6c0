// The picture of a forecast: the end of the series, the median, and intervals of 80 and 95 %.

const HISTORY = 4, NARROW = 560; // horizons of history in the picture, and the pixels below which there are half
const LEFT = 58, RIGHT = 8, TOP = 10, BOTTOM = 26; // pixels around the picture

function shortNumber(value) {
  if (Math.abs(value) >= 1e6 || (value && Math.abs(value) < 1e-3)) return value.toExponential(2);
  return Number(value.toPrecision(5)).toLocaleString("en", { maximumSignificantDigits: 5 });
}

class Fan {
  // `told`: called with what is at the step that is pointed at.
  constructor(told) {
    this.told = told;
    this.chart = byId("chart");
    this.chart.addEventListener("pointermove", (event) => this.point(event));
    this.chart.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      this.show(this.pointed + by);
    });
    onWidth(byId("picture"), () => this.quantiles && this.draw());
  }

  // `whens`: the time of each value and of each step after them.
  set(values, quantiles, whens) {
    Object.assign(this, { values, quantiles, times: whens, ahead: 0 });
    this.draw();
  }

  draw() {
    const width = Math.max(byId("picture").clientWidth, 280), height = Math.min(Math.max(0.4 * width, 240), 400);
    const { quantiles } = this, horizons = width < NARROW ? HISTORY / 2 : HISTORY;
    const history = (this.history = this.values.slice(-Math.max(horizons * quantiles.length, 24)));
    this.whens = this.times.slice(-history.length - quantiles.length);
    const all = [...history.filter((value) => !Number.isNaN(value)), ...quantiles.flat()];
    const [low, high] = [Math.min(...all), Math.max(...all)], room = 0.05 * (high - low) || 0.05 * Math.abs(high) || 1;
    this.x = (step) => LEFT + ((width - LEFT - RIGHT) * step) / (this.whens.length - 1);
    this.y = (value) => TOP + ((height - BOTTOM - TOP) * (high + room - value)) / (high - low + 2 * room);
    const grid = roundValues(low - room, high + room).flatMap((value) => (
      gridLine(LEFT, width - RIGHT, this.y(value), shortNumber(value))
    ));
    this.head = element("svg:line", { class: "now", y1: TOP - 4, y2: height - BOTTOM });
    this.chart.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.chart.replaceChildren(...grid, ...this.marks(width, height), ...this.lines(), this.head);
    this.show(history.length + this.ahead);
  }

  marks(width, height) {
    const last = this.history.length - 1, end = this.whens.length - 1;
    const shown = [[0, "start"], ...(width < NARROW ? [] : [[last, "middle"]]), [end, "end"]];
    return shown.map(([step, anchor]) => (
      element("svg:text", { x: this.x(step), y: height - 6, "text-anchor": anchor }, this.whens[step])
    ));
  }

  // Bands and median begin at the last known value.
  lines() {
    const { history, quantiles } = this, last = history.length - 1;
    const places = (points) => points.map(([step, value]) => [this.x(step), this.y(value)]);
    const level = (number) => [[last, history[last]], ...quantiles.map((row, step) => [last + 1 + step, row[number]])];
    const band = (lower, upper) => {
      const d = `${pathOf(places([...level(upper), ...level(lower).reverse()]))}Z`;
      return element("svg:path", { class: "band", d });
    };
    const known = history.map((value, step) => [step, value]).filter(([, value]) => !Number.isNaN(value));
    return [
      band(0, 4), band(1, 3), element("svg:path", { class: "line", d: pathOf(places(known)) }),
      element("svg:path", { class: "line median", d: pathOf(places(level(2))) }),
    ];
  }

  // Say what is at a step of the picture.
  show(step) {
    this.pointed = Math.min(Math.max(step, 0), this.whens.length - 1);
    this.ahead = this.pointed - this.history.length; // another width shows another part of the history
    for (const end of ["x1", "x2"]) this.head.setAttribute(end, this.x(this.pointed));
    const { history, pointed } = this, row = this.quantiles[pointed - history.length]?.map(shortNumber);
    const known = () => (Number.isNaN(history[pointed]) ? "missing" : shortNumber(history[pointed]));
    const said = row ? `${row[2]}; 80 %: ${row[1]} to ${row[3]}; 95 %: ${row[0]} to ${row[4]}` : known();
    this.told(`${this.whens[pointed]}: ${said}`);
  }

  point(event) {
    const box = this.chart.getBoundingClientRect(), end = this.whens.length - 1;
    const share = (event.clientX - box.left - this.x(0)) / (this.x(end) - this.x(0));
    this.show(Math.round(share * end));
  }
}
