// Playing: a keyboard on the screen, the keys of the computer, and MIDI keyboards.

const LETTERS = "KeyA KeyW KeyS KeyE KeyD KeyF KeyT KeyG KeyY KeyH KeyU KeyJ KeyK KeyO KeyL KeyP Semicolon".split(" ");
const LOWEST = 24, HIGHEST = 96; // MIDI notes that the keyboard can be moved to

class Keyboard {
  // `press(note)` and `release(note)` are called for every way of playing.
  constructor(place, { press, release }) {
    Object.assign(this, { place, held: new Map(), from: 60, listeners: { press, release } });
    this.sources = new Map(); // the note that each computer key or pointer holds
    this.build();
    onWidth(place, () => this.octaves() !== this.shown && this.build());
    addEventListener("keydown", (event) => this.keyDown(event));
    addEventListener("keyup", (event) => this.let(event.code));
    addEventListener("blur", () => [...this.sources.keys()].forEach((source) => this.let(source)));
    byId("lower").addEventListener("click", () => this.move(-12));
    byId("higher").addEventListener("click", () => this.move(12));
  }

  octaves() {
    return Math.min(Math.max(Math.floor(this.place.clientWidth / 210), 1), 4);
  }

  // The lowest note on the screen: the octave of the letters is the second of three or more.
  get lowest() {
    return Math.max(this.from - (this.shown > 2 ? 12 : 0), LOWEST);
  }

  build() {
    this.shown = this.octaves();
    const count = 12 * this.shown + 1, whites = 7 * this.shown + 1;
    this.buttons = new Map();
    let white = 0;
    for (let note = this.lowest; note < this.lowest + count; ++note) {
      const black = BLACK.includes(note % 12), letter = LETTERS[note - this.from];
      const hint = letter ? letter.replace("Key", "").replace("Semicolon", ";") : "";
      const left = black ? `calc(${(100 * white) / whites}% - ${33 / whites}%)` : `${(100 * white) / whites}%`;
      const button = element("button", {
        type: "button", class: black ? "black" : "white", "aria-label": noteName(note),
        tabindex: note === this.from ? 0 : -1, style: { left, width: `${(black ? 66 : 100) / whites}%` },
      }, element("span", { "aria-hidden": "true" }, hint));
      button.dataset.note = note;
      this.buttons.set(note, button);
      if (!black) ++white;
    }
    this.place.replaceChildren(...this.buttons.values());
    this.listen();
    byId("lower").disabled = this.from - 12 < LOWEST;
    byId("higher").disabled = this.from + 24 > HIGHEST;
  }

  move(by) {
    if (this.from + by < LOWEST || this.from + by + 12 > HIGHEST) return;
    [...this.sources.keys()].forEach((source) => this.let(source));
    this.from += by;
    this.build();
  }

  listen() {
    const noteAt = (event) => {
      const under = document.elementFromPoint(event.clientX, event.clientY);
      return Number(under?.closest("[data-note]")?.dataset.note);
    };
    this.place.onpointerdown = (event) => {
      event.target.releasePointerCapture?.(event.pointerId); // so that a finger can slide over the keys
      if (event.button === 0) this.hold(`pointer ${event.pointerId}`, noteAt(event));
    };
    this.place.onpointermove = (event) => {
      if (this.sources.has(`pointer ${event.pointerId}`)) this.hold(`pointer ${event.pointerId}`, noteAt(event));
    };
    for (const kind of ["onpointerup", "onpointercancel", "onpointerleave"])
      this.place[kind] = (event) => this.let(`pointer ${event.pointerId}`);
    this.place.onkeydown = (event) => {
      const note = Number(event.target.dataset?.note), step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step && this.buttons.has(note + step)) {
        event.target.tabIndex = -1;
        this.buttons.get(note + step).tabIndex = 0;
        this.buttons.get(note + step).focus();
        event.preventDefault();
      } else if ((event.key === "Enter" || event.key === " ") && !event.repeat) {
        this.hold(event.code, note);
        event.preventDefault();
      }
    };
  }

  keyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    if (event.target.matches?.("textarea, select, input:not([type=range], [type=checkbox])")) return;
    if (event.code === "KeyZ" || event.code === "KeyX") return void this.move(event.code === "KeyZ" ? -12 : 12);
    const number = LETTERS.indexOf(event.code);
    if (number < 0) return;
    event.preventDefault();
    this.hold(event.code, this.from + number);
  }

  // A source, such as a letter or a finger, holds a note, and lets go of the one before.
  hold(source, note) {
    if (this.sources.get(source) === note) return;
    this.let(source);
    if (!Number.isInteger(note)) return;
    this.sources.set(source, note);
    const count = this.held.get(note) || 0;
    this.held.set(note, count + 1);
    this.buttons.get(note)?.classList.add("down");
    if (!count) this.listeners.press(note);
  }

  let(source) {
    const note = this.sources.get(source);
    if (note === undefined) return;
    this.sources.delete(source);
    const count = this.held.get(note) - 1;
    if (count) return void this.held.set(note, count);
    this.held.delete(note);
    this.buttons.get(note)?.classList.remove("down");
    this.listeners.release(note);
  }

  // Show which notes sound.
  light(notes) {
    for (const [note, button] of this.buttons) button.classList.toggle("sounds", notes.has(note));
  }

  // Listen to MIDI keyboards, also to those that are plugged in later; return how many there are.
  async connect() {
    const access = await navigator.requestMIDIAccess();
    const listen = () => access.inputs.forEach((input) => {
      input.onmidimessage = ({ data: [status, note, velocity] }) => {
        const kind = status & 0xf0, source = `${input.id} ${note}`;
        if (kind === 0x90 && velocity) this.hold(source, note);
        else if (kind === 0x80 || kind === 0x90) this.let(source);
      };
    });
    access.onstatechange = listen;
    listen();
    return access.inputs.size;
  }
}
