// Text: reads a beginning, then draws one token after another; the likeliest ones can be chosen instead.

const MAX_READ = 20000; // tokens of a beginning
const MAX_SHOWN = 2000; // characters of it that are shown
const LIKELIEST = 8;

class Writer {
  constructor(model) {
    this.model = model;
    this.vocabulary = new Vocabulary(model);
    Object.assign(this, { tokens: [], seed: 1, temperature: 0.8, length: 400 });
    byId("write").addEventListener("click", () => (this.writing ? this.stop() : this.write()));
    byId("take").addEventListener("click", () => this.take());
    byId("copy").addEventListener("click", () => this.copy());
    slider("temperature", (value) => value.toFixed(2), (value) => (this.temperature = value));
    slider("length", (value) => counted(value, this.vocabulary.noun), (value) => (this.length = value));
    const read = debounced(() => this.stale && this.read());
    this.prompt = new Field("prompt", () => {
      this.stale = true;
      read();
    });
    this.prompt.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.write();
    });
    const begins = "The ";
    if (!this.vocabulary.unknownIn(this.vocabulary.parts(begins)).length) this.prompt.set(begins);
    this.read();
  }

  // Read the beginning; what was written after another one goes. `ready` says whether it was read to its end.
  read() {
    return (this.ready = this.readAll());
  }

  async readAll() {
    this.stop();
    this.stale = false;
    this.tokens = [];
    const { parts: read, cut } = this.vocabulary.lastParts(this.prompt.text, MAX_READ);
    this.last = read.at(-1)?.token;
    this.warn(read, cut);
    this.show();
    const done = await inSlices(this.steps(read), (count) => sayRead(count, read.length));
    if (!done) return false;
    say("");
    this.showNext();
    return true;
  }

  *steps(read) {
    this.model.reset();
    this.model.seed(this.seed);
    for (let count = 0; count < read.length; ++count) {
      this.model.stepToken(read[count].token);
      yield count;
    }
    return true;
  }

  warn(parts, cut) {
    const unknown = this.vocabulary.unknownIn(parts), { noun } = this.vocabulary, warnings = [];
    if (cut) warnings.push(`This is long: the model reads the last ${counted(parts.length, noun)}.`);
    if (unknown.length) {
      const quoted = unknown.slice(0, 8).map((text) => `\u201c${text.slice(0, 30)}\u201d`).join(", ");
      const named = unknown.length > 8 ? `${quoted}, ...` : quoted, count = counted(unknown.length, noun);
      warnings.push(`The model has never seen ${count} of this text: ${named}. It reads each as unknown.`);
    }
    complain(warnings.join("\n"));
  }

  get text() {
    return this.vocabulary.text(this.tokens, this.last);
  }

  show() {
    const begun = this.prompt.text, hidden = begun.length > MAX_SHOWN;
    byId("begun").textContent = (hidden ? "\u2026" : "") + begun.slice(hidden ? -MAX_SHOWN : 0);
    byId("drawn").textContent = this.text;
    byId("written").classList.toggle("going", Boolean(this.writing));
    byId("write").textContent = this.writing ? "Stop" : "Write";
    byId("write").classList.toggle("on", Boolean(this.writing));
  }

  showNext() {
    const { model, vocabulary } = this, known = this.last !== undefined || this.tokens.length;
    byId("nothing").hidden = Boolean(known);
    if (!known) return void byId("next").replaceChildren();
    const chances = model.chances();
    const order = likeliest(chances, LIKELIEST, (token) => vocabulary.isWritten(token));
    showBars(byId("next"), order.map((token) => (
      { ...vocabulary.shown(token), chance: chances[token], choose: () => this.choose(token) }
    )));
  }

  add(token) {
    this.tokens.push(token);
    this.model.stepToken(token);
  }

  async choose(token) {
    if (this.stale || !(await this.ready)) return; // it was likely after another text
    this.stop();
    this.add(token);
    this.show();
    this.showNext();
    byId("next").querySelector("button")?.focus();
  }

  // Draw the next token. Before the first there is nothing to draw it from: all are equally likely.
  draw() {
    const { model, vocabulary } = this;
    if (this.last !== undefined || this.tokens.length) return model.token(this.temperature);
    const able = [...vocabulary.names.keys()].filter((token) => vocabulary.isWritten(token));
    return able[Math.floor(model.random() * able.length)];
  }

  // One token a frame, or more if words are to come as fast as letters; all at once with reduced motion.
  async write() {
    if (this.stale) this.read();
    if (!(await this.ready) || this.writing) return;
    const mine = (this.writing = Symbol("text"));
    const end = this.tokens.length + this.length, each = calm.matches ? 20 : this.vocabulary.byWords ? 1 : 2;
    while (this.writing === mine && this.tokens.length < end) {
      for (let count = 0; count < each && this.tokens.length < end; ++count) this.add(this.draw());
      this.show();
      this.showNext();
      await new Promise((done) => setTimeout(done, this.vocabulary.byWords ? 60 : 16));
    }
    if (this.writing === mine) this.stop();
  }

  stop() {
    this.writing = undefined;
    this.show();
  }

  async take() {
    ++this.seed;
    if (await this.read()) this.write();
  }

  async copy() {
    const text = this.prompt.text + this.text;
    try {
      await navigator.clipboard.writeText(text);
      say("Copied.");
    } catch {
      getSelection().selectAllChildren(byId("written"));
      say("Selected: copy it with your keyboard.");
    }
  }
}

let writer;
begin((model) => (writer = new Writer(model)));
