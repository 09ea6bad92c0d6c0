// Music: the piece is what is given, and what the model draws after it with this take's seed. Every change composes
// anew, which takes milliseconds.

const MAX_STEPS = 2000; // of what is given
const PHRASE = 4; // seconds after which playing begins another phrase
const ANSWER = 1.6; // steps without a key, at least 0.7 seconds, after which the model answers

class Music {
  constructor(model) {
    this.model = model;
    this.beat = model.numbers.beat;
    this.first = model.numbers.first + 12 * about.octave;
    this.bar = Math.max(Math.round(about.beats_per_bar * this.beat), 1);
    Object.assign(this, { given: [], composed: [], past: [], seed: 1, temperature: 1, voices: 0, tempo: 80, bars: 8 });
    this.player = new Player(() => this.roll, () => (this.tempo / 60) * this.beat, this.first, () => this.playing());
    this.picture = new Roll(this.first, () => this.view(), {
      toggle: (key, step, on) => this.toggle(key, step, on),
      seek: (step) => this.seek(step),
    });
    this.keyboard = new Keyboard(byId("piano"), {
      press: (note) => this.press(note),
      release: (note) => this.release(note),
    });
    this.phrase = { keys: new Set(), sounds: new Map(), pressed: 0, released: -Infinity };
    this.controls();
    this.open(0, false);
  }

  get roll() {
    return [...this.given, ...this.composed];
  }

  view() {
    const { given, bar, beat, player } = this;
    return { roll: this.roll, given: given.length, head: player.now, playing: player.playing, bar, beat };
  }

  controls() {
    const on = (id, work) => byId(id).addEventListener("click", work);
    on("play", () => (this.player.playing ? this.player.stop() : this.player.play()));
    on("take", () => this.take(this.seed + 1));
    on("further", () => this.change(this.roll));
    on("undo", () => this.undo());
    on("clear", () => this.change([]));
    on("save", () => this.save());
    slider("temperature", (value) => value.toFixed(2), (value) => this.set({ temperature: value }));
    slider("bars", (value) => String(value), (value) => this.set({ bars: value }));
    slider("tempo", (value) => `${value} beats a minute`, (value) => {
      this.tempo = value;
      this.player.retime();
    });
    slider("voices", (value) => (value ? String(value) : "as it likes"), (value) => this.set({ voices: value }));
    byId("opening").append(...about.openings.map(({ name }, number) => element("option", { value: number }, name)));
    byId("opening").append(element("option", { value: -1 }, "nothing"));
    byId("opening").addEventListener("change", (event) => this.open(Number(event.target.value)));
    const midi = byId("midi");
    midi.hidden = !navigator.requestMIDIAccess;
    on("midi", () => this.keyboard.connect().then(
      (count) => say(count ? `Listening to ${counted(count, "MIDI keyboard")}.` : "No MIDI keyboard yet: plug one in."),
      (error) => complain(`MIDI keyboards cannot be used: ${error.message}`),
    ));
    addEventListener("keydown", (event) => {
      if (event.code === "Space" && event.target === document.body) {
        event.preventDefault();
        byId("play").click();
      }
      if (event.code === "KeyZ" && (event.ctrlKey || event.metaKey)) this.undo();
    });
  }

  set(values) {
    Object.assign(this, values);
    this.compose();
  }

  open(number, remember = true) {
    const chords = number < 0 ? [] : about.openings[number].chords;
    const given = chords.map((notes) => {
      const keys = new Uint8Array(this.model.numbers.keys);
      for (const note of notes) if (note >= this.first && note < this.first + keys.length) keys[note - this.first] = 1;
      return keys;
    });
    this.player.stop(0);
    this.change(given.flatMap((keys) => Array(this.beat).fill(keys)), remember);
  }

  // Set what is given, without silence at its end, and compose after it.
  change(given, remember = true) {
    if (remember && this.given !== given) this.past.push(this.given);
    this.given = given.slice(0, MAX_STEPS);
    while (this.given.length && !this.given.at(-1).includes(1)) this.given.pop();
    byId("undo").disabled = !this.past.length;
    complain(given.length > MAX_STEPS ? `A piece can have ${MAX_STEPS} steps; the rest was cut off.` : "");
    return this.compose();
  }

  undo() {
    if (this.past.length) this.change(this.past.pop(), false);
  }

  take(seed) {
    this.seed = seed;
    byId("take-value").textContent = seed;
    this.compose().then(() => this.player.playing || this.player.play(Math.max(this.given.length - this.bar, 0)));
  }

  async compose() {
    const done = await inSlices(this.continuation(), () => this.picture.draw());
    if (done) this.picture.draw();
    return done;
  }

  // Draw as many steps as are wanted. As in training, silent steps are not read if the data had none.
  *continuation() {
    const { model, bars, bar, temperature, voices } = this;
    const composed = (this.composed = []);
    model.reset();
    model.seed(this.seed);
    const read = this.given.filter((keys) => about.rests || keys.includes(1));
    const silence = () => new Uint8Array(model.numbers.keys); // a bar of it, so that the first step begins one
    for (const keys of read.length ? read : Array.from({ length: model.numbers.bar || 1 }, silence)) {
      model.step(keys);
      yield;
    }
    while (composed.length < bars * bar) {
      composed.push(model.chord(temperature, voices));
      model.step(composed.at(-1));
      yield;
    }
    return true;
  }

  toggle(key, step, on) {
    const given = this.given.map((keys) => keys.slice());
    while (given.length <= step) given.push(new Uint8Array(this.model.numbers.keys));
    given[step][key] = on ? 1 : 0;
    if (on && !this.player.playing) this.player.sound.note(this.first + key, undefined, 0.4);
    this.change(given);
  }

  seek(step) {
    if (this.player.playing) this.player.play(step);
    else this.player.position = step;
    this.picture.draw();
  }

  // Keys that are down at the same time are one chord; it is as long as they were held.
  press(note) {
    const { phrase } = this, now = performance.now() / 1000;
    clearTimeout(this.answer);
    phrase.sounds.set(note, this.player.sound.note(note));
    if (!phrase.keys.size) {
      const begins = now - phrase.released > PHRASE || this.player.playing;
      if (this.player.playing) this.player.stop(0);
      if (begins) phrase.start = [];
      phrase.pressed = now;
    }
    if (note >= this.first && note < this.first + this.model.numbers.keys) phrase.keys.add(note - this.first);
  }

  release(note) {
    const { phrase } = this, now = performance.now() / 1000;
    phrase.sounds.get(note)?.();
    phrase.sounds.delete(note);
    if (phrase.sounds.size || !phrase.keys.size) return;
    const chord = new Uint8Array(this.model.numbers.keys), rate = (this.tempo / 60) * this.beat;
    for (const key of phrase.keys) chord[key] = 1;
    phrase.keys.clear();
    phrase.released = now;
    const held = Math.round((now - phrase.pressed) * rate), least = Math.ceil(this.beat / 2), most = 4 * this.bar;
    const steps = Math.min(Math.max(held, least), most);
    phrase.start = [...phrase.start, ...Array(steps).fill(chord)];
    this.change(phrase.start).then(() => this.picture.reveal(this.given.length));
    if (!byId("answers").checked) return;
    this.answer = setTimeout(() => this.player.play(this.given.length), 1000 * Math.max(ANSWER / rate, 0.7));
  }

  playing() {
    const { playing } = this.player;
    byId("play").textContent = playing ? "Stop" : "Play";
    byId("play").classList.toggle("on", playing);
    if (playing) requestAnimationFrame(() => this.follow());
    else this.keyboard.light(new Set());
    this.picture.draw();
  }

  // Move the head while it plays; with reduced motion it jumps from step to step.
  follow() {
    if (!this.player.playing) return;
    const step = Math.floor(this.player.now), keys = this.roll[step] || [];
    if (step !== this.shown || !calm.matches) this.picture.draw();
    if (step !== this.shown) {
      this.keyboard.light(new Set(Array.from(keys.keys()).filter((key) => keys[key]).map((key) => this.first + key)));
      this.picture.reveal(step);
    }
    this.shown = step;
    requestAnimationFrame(() => this.follow());
  }

  save() {
    const { first, beat, tempo } = this;
    download(`piece-${about.task}-${this.seed}.mid`, "audio/midi", midiFile(this.roll, { first, beat, tempo }));
  }
}

let music;
begin((model) => (music = new Music(model)));
