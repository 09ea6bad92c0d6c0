// Reading: runs a sequence through the model, keeps the chances of the classes after each step, and shows them.

const SHOWN = 6; // classes in the picture
const READ_FOR = 1100; // milliseconds in which the picture follows the reading

class Reading {
  // `noun`: what a step is, such as word.
  constructor(model, noun, at = () => {}) {
    Object.assign(this, { model, noun, at, track: [], shown: 0 });
    const { tokens, logits } = model.numbers;
    this.names = Array.from({ length: logits }, (_, number) => model.name(tokens + number) ?? String(number));
    const chart = byId("chart");
    chart.addEventListener("pointermove", (event) => this.point(event));
    chart.addEventListener("pointerleave", () => this.show(this.track.length - 1));
    chart.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      this.show(this.shown + by);
    });
    onWidth(byId("picture"), () => this.track.length && this.draw());
    this.clear();
  }

  clear() {
    stopWork();
    this.track = [];
    byId("result").hidden = true;
    byId("empty").hidden = false;
    byId("chances").replaceChildren();
    say("");
  }

  // Read steps, tokens or features; then show how the chances changed.
  async read(steps) {
    const done = await inSlices(this.steps(steps), (count) => sayRead(count, steps.length));
    if (!done) return false;
    if (!done.at(-1).every(Number.isFinite)) {
      this.clear();
      complain("The model cannot read this: its values are too far from those in training.");
      return false;
    }
    this.track = done;
    this.order = likeliest(done.at(-1), SHOWN);
    byId("empty").hidden = true;
    byId("result").hidden = false;
    this.draw();
    this.follow(performance.now());
    return true;
  }

  *steps(steps) {
    const { model } = this, track = [];
    model.reset();
    for (const step of steps) {
      if (typeof step === "number") model.stepToken(step);
      else model.step(step);
      track.push(model.chances());
      yield track.length;
    }
    return track;
  }

  // Move from the first step to the last; at once with reduced motion.
  follow(start) {
    const { track } = this, share = calm.matches ? 1 : (performance.now() - start) / READ_FOR;
    this.show(Math.min(Math.floor(share * track.length), track.length - 1));
    if (share < 1) requestAnimationFrame(() => this.track === track && this.follow(start));
  }

  colour(number) {
    const place = this.order.indexOf(number);
    return place < 0 ? "var(--soft)" : `var(--s${place})`;
  }

  draw() {
    const width = Math.max(byId("picture").clientWidth, 260), height = 190, left = 48;
    const count = Math.max(this.track.length - 1, 1), every = Math.max(Math.floor(this.track.length / 600), 1);
    this.x = (step) => left + ((width - left - 6) * step) / count;
    const y = (chance) => 8 + (height - 34) * (1 - chance);
    const drawn = [...this.track.keys()].filter((step) => step % every === 0 || step === count);
    const lines = [...this.order].reverse().map((number) => {
      const d = pathOf(drawn.map((step) => [this.x(step), y(this.track[step][number])]));
      return element("svg:path", { class: "line", d, style: { stroke: this.colour(number) } });
    });
    const grid = [0, 0.5, 1].flatMap((chance) => gridLine(left, width - 6, y(chance), `${100 * chance} %`));
    this.head = element("svg:line", { class: "now", y1: 4, y2: height - 26 });
    const read = `${counted(this.track.length, this.noun)} read`;
    const end = element("svg:text", { x: width - 6, y: height - 6, "text-anchor": "end" }, read);
    byId("chart").setAttribute("viewBox", `0 0 ${width} ${height}`);
    byId("chart").replaceChildren(...grid, ...lines, this.head, end);
    this.show(this.shown);
  }

  // Show the chances after a step.
  show(step) {
    if (!this.track.length) return;
    this.shown = Math.min(Math.max(step, 0), this.track.length - 1);
    const chances = this.track[this.shown];
    showBars(byId("chances"), likeliest(chances, SHOWN).map((number) => (
      { text: this.names[number], chance: chances[number], colour: this.colour(number) }
    )));
    for (const end of ["x1", "x2"]) this.head.setAttribute(end, this.x(this.shown));
    const best = likeliest(chances, 1)[0];
    const told = `After ${counted(this.shown + 1, this.noun)}: ${this.names[best]}, ${percent(chances[best])}`;
    if (byId("status").textContent !== told) say(told);
    this.at(this.shown);
  }

  point(event) {
    const box = byId("chart").getBoundingClientRect(), last = this.track.length - 1;
    this.show(Math.round(((event.clientX - box.left - this.x(0)) / (this.x(last) - this.x(0) || 1)) * last));
  }
}
