// The piano roll: draws the part of a piece that is in view, and says which key and step is clicked.

const BLACK = [1, 3, 6, 8, 10]; // semitones above C
const NAMES = ["C", "C sharp", "D", "E flat", "E", "F", "F sharp", "G", "A flat", "A", "B flat", "B"];
const MOVES = {
  ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [1, 0], ArrowDown: [-1, 0], PageUp: [12, 0], PageDown: [-12, 0],
}; // keys and steps
const STRIP = 44, RULER = 26, ROW = 11, LEAST = [48, 79]; // pixels; the MIDI notes that are always in view

function noteName(note) {
  return `${NAMES[note % 12]} ${Math.floor(note / 12) - 1}`;
}

class Roll {
  // `view()` returns { roll, given, head, bar, beat }; `toggle(key, step, on)` and `seek(step)` say what was clicked.
  constructor(first, view, { toggle, seek }) {
    Object.assign(this, { first, view, toggle, seek, canvas: byId("roll"), scroller: byId("scroller") });
    [this.low, this.high] = LEAST;
    this.cursor = { key: 60 - first, step: 0 };
    this.pen = this.canvas.getContext("2d");
    onWidth(this.scroller, () => this.draw());
    this.scroller.addEventListener("scroll", () => this.draw());
    dark.addEventListener("change", () => this.draw());
    this.listen();
  }

  colours() {
    const style = getComputedStyle(document.body);
    return new Proxy({}, { get: (_, name) => style.getPropertyValue("--" + name).trim() });
  }

  // Fit rows to the notes that sound, and the width of a step to the window; scroll if that would be too narrow.
  layout() {
    const { roll, beat } = this.view();
    let [low, high] = LEAST;
    for (const keys of roll) {
      for (let key = 0; key < keys.length; ++key) {
        if (!keys[key]) continue;
        low = Math.min(low, this.first + key - 2);
        high = Math.max(high, this.first + key + 2);
      }
    }
    [this.low, this.high] = [Math.max(low, this.first), Math.min(high, this.first + 87)];
    this.wide = this.scroller.clientWidth;
    this.step = Math.max((this.wide - STRIP - 8) / roll.length, 15 / beat, 9);
    this.tall = RULER + ROW * (this.high - this.low + 1) + 6;
    byId("extent").style.width = `${Math.max(STRIP + this.step * roll.length + 8, this.wide)}px`;
    const scale = devicePixelRatio || 1;
    const [width, height] = [Math.round(this.wide * scale), Math.round(this.tall * scale)];
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    this.canvas.style.width = `${this.wide}px`;
    this.canvas.style.height = `${this.tall}px`;
    this.pen.setTransform(scale, 0, 0, scale, 0, 0);
  }

  x(step) {
    return STRIP + this.step * step - this.scroller.scrollLeft;
  }

  y(note) {
    return RULER + ROW * (this.high - note);
  }

  draw() {
    this.layout();
    const { pen, wide, tall } = this, colour = this.colours(), state = this.view();
    pen.clearRect(0, 0, wide, tall);
    this.grid(colour, state);
    this.notes(colour, state);
    if (document.activeElement === this.canvas) {
      pen.strokeStyle = colour.accent;
      pen.lineWidth = 2;
      pen.strokeRect(this.x(this.cursor.step) + 1, this.y(this.first + this.cursor.key) + 1, this.step - 2, ROW - 2);
    }
    if (state.head > 0 || state.playing) {
      pen.fillStyle = colour.frame;
      pen.fillRect(this.x(state.head) - 1, RULER - 6, 2, tall - RULER);
    }
    this.strip(colour, state);
  }

  grid(colour, { roll, given, bar, beat }) {
    const { pen, tall } = this, right = this.x(roll.length), bottom = this.y(this.low) + ROW;
    pen.fillStyle = colour.card;
    pen.fillRect(0, 0, this.wide, tall);
    for (let note = this.low; note <= this.high; ++note) {
      if (!BLACK.includes(note % 12)) continue;
      pen.fillStyle = colour.wash;
      pen.fillRect(STRIP, this.y(note), right - STRIP, ROW);
    }
    pen.globalAlpha = 0.07;
    pen.fillStyle = colour.ink;
    pen.fillRect(STRIP, RULER, this.x(given) - STRIP, bottom - RULER);
    pen.globalAlpha = 1;
    pen.font = "12px " + colour.sans;
    pen.textBaseline = "middle";
    for (let step = 0; step <= roll.length; ++step) {
      if (step % beat && this.step < 12) continue;
      const x = Math.round(this.x(step)) + 0.5;
      if (x < STRIP - 1 || x > this.wide + 40) continue;
      pen.strokeStyle = colour.rule;
      pen.globalAlpha = step % bar ? 0.45 : 1;
      pen.lineWidth = 1;
      pen.beginPath();
      pen.moveTo(x, step % bar ? RULER : RULER - 8);
      pen.lineTo(x, bottom);
      pen.stroke();
      pen.globalAlpha = 1;
      pen.fillStyle = colour.soft;
      if (step % bar === 0 && step < roll.length) pen.fillText(String(step / bar + 1), x + 5, RULER / 2 - 1);
    }
  }

  notes(colour, { roll, given, head, playing }) {
    const { pen } = this;
    for (const { key, start, length } of notesOf(roll)) {
      const end = start + length;
      for (const [from, to, by] of [[start, Math.min(end, given), "soft"], [Math.max(start, given), end, "s0"]]) {
        if (from >= to || this.x(to) < STRIP || this.x(from) > this.wide) continue;
        const sounding = playing && head >= start && head < end, width = Math.max(this.step * (to - from) - 2, 2);
        pen.fillStyle = sounding ? colour.frame : colour[by];
        pen.beginPath();
        pen.roundRect(this.x(from) + 1, this.y(this.first + key) + 1, width, ROW - 2, 3);
        pen.fill();
      }
    }
  }

  // The keys on the left, which stay when the piece is scrolled.
  strip(colour, { roll, head, playing }) {
    const { pen } = this, keys = playing ? roll[Math.floor(head)] || [] : [];
    pen.fillStyle = colour.card;
    pen.fillRect(0, 0, STRIP, this.tall);
    for (let note = this.low; note <= this.high; ++note) {
      const black = BLACK.includes(note % 12), y = this.y(note);
      pen.fillStyle = keys[note - this.first] ? colour.frame : black ? colour.ebony : colour.ivory;
      pen.beginPath();
      pen.roundRect(24.5, y + 0.5, black ? 11 : 16, ROW - 1, 2);
      pen.fill();
      pen.strokeStyle = colour.rule;
      pen.lineWidth = 1;
      if (!black) pen.stroke();
      pen.fillStyle = colour.soft;
      if (note % 12 === 0) pen.fillText(`C${note / 12 - 1}`, 2, y + ROW / 2 + 0.5);
    }
  }

  // Return the place of an event: `ruler` if it is above the keys.
  place(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const step = Math.floor((x - STRIP + this.scroller.scrollLeft) / this.step);
    const note = this.high - Math.floor((y - RULER) / ROW);
    const inside = x >= STRIP && step >= 0 && step < this.view().roll.length;
    return { step, key: note - this.first, ruler: y < RULER, inside: inside && (y < RULER || note >= this.low) };
  }

  listen() {
    let painting, last;
    this.canvas.addEventListener("pointerdown", (event) => {
      const at = this.place(event);
      if (!at.inside || event.button) return;
      if (at.ruler) return void this.seek(at.step);
      if (event.pointerType !== "mouse") return; // a finger may want to scroll: a tap is a click
      this.canvas.setPointerCapture(event.pointerId);
      const { roll, given } = this.view();
      painting = !(at.step < given && roll[at.step][at.key]);
      last = `${at.key} ${at.step}`;
      this.toggle(at.key, at.step, painting);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const at = this.place(event);
      if (painting === undefined || !at.inside || at.ruler || last === `${at.key} ${at.step}`) return;
      last = `${at.key} ${at.step}`;
      this.toggle(at.key, at.step, painting);
    });
    for (const kind of ["pointerup", "pointercancel"]) this.canvas.addEventListener(kind, () => (painting = undefined));
    this.canvas.addEventListener("click", (event) => {
      const at = this.place(event), { roll, given } = this.view();
      if (event.pointerType === "mouse" || event.detail === 0 || !at.inside || at.ruler) return;
      this.toggle(at.key, at.step, !(at.step < given && roll[at.step][at.key]));
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    for (const kind of ["focus", "blur"]) this.canvas.addEventListener(kind, () => this.draw());
  }

  key(event) {
    const { roll, given, bar } = this.view(), { cursor } = this, set = event.key === "Enter" || event.key === " ";
    if (event.ctrlKey || event.metaKey || event.altKey || !(set || event.key in MOVES)) return;
    event.preventDefault();
    if (set) {
      this.toggle(cursor.key, cursor.step, !(cursor.step < given && roll[cursor.step][cursor.key]));
    } else {
      const [up, right] = MOVES[event.key];
      cursor.key = Math.min(Math.max(cursor.key + up, this.low - this.first), this.high - this.first);
      cursor.step = Math.min(Math.max(cursor.step + right, 0), roll.length - 1);
      this.reveal(cursor.step);
    }
    const now = this.view(), owner = cursor.step < now.given ? ", yours" : ", the model's";
    const place = `bar ${Math.floor(cursor.step / bar) + 1}, step ${(cursor.step % bar) + 1}`;
    say(`${noteName(this.first + cursor.key)}, ${place}${now.roll[cursor.step]?.[cursor.key] ? owner : ""}`);
    this.draw();
  }

  // Scroll so that a step is in view.
  reveal(step) {
    const x = this.x(step);
    if (x < STRIP || x > this.wide - 2 * this.step - 8) {
      const behavior = calm.matches ? "instant" : "smooth";
      this.scroller.scrollTo({ left: this.step * step - 0.25 * this.wide, behavior });
    }
  }
}
