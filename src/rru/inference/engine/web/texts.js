// Labels of texts: chances as the model reads; a word is tinted with the colour of the class that it speaks for.

class TextLabels {
  constructor(model) {
    this.vocabulary = new Vocabulary(model);
    this.reading = new Reading(model, "word", (step) => this.follow(step));
    this.field = new Field("text", debounced(() => this.read(), 200));
    byId("clear").addEventListener("click", () => {
      this.field.set("");
      this.read();
      this.field.input.focus();
    });
    this.read();
  }

  async read() {
    const text = this.field.text.replace(/<br \/>/gi, "      "); // as in training
    const { parts, cut } = this.vocabulary.lastParts(text, about.context);
    this.parts = parts;
    byId("words").replaceChildren();
    byId("shown").hidden = !parts.length;
    const unknown = parts.filter(({ token }) => token === this.vocabulary.unknown).length, warnings = [];
    if (text.trim() && !parts.length) warnings.push("There are no words in it.");
    if (cut && parts.length) warnings.push(`This is long: the model reads the last ${counted(parts.length, "word")}.`);
    const known = `${parts.length - unknown} of ${counted(parts.length, "word")}`;
    if (unknown && 3 * unknown > parts.length) warnings.push(`The model knows ${known}: do not trust it here.`);
    complain(warnings.join("\n"));
    if (!parts.length) return void this.reading.clear();
    if (await this.reading.read(parts.map(({ token }) => token))) this.show(text);
  }

  // Write the words that were read, each with its tint.
  show(text) {
    const { track } = this.reading;
    let before = this.parts[0].start;
    this.spans = this.parts.map(({ text: word, token }, step) => {
      const chances = track[step], old = step ? track[step - 1] : chances.map(() => 1 / chances.length);
      const change = Array.from(chances, (chance, number) => chance - old[number]), most = likeliest(change, 1)[0];
      const share = Math.min(Math.round(250 * change[most]), 60);
      const colour = `color-mix(in srgb, ${this.reading.colour(most)} ${share}%, transparent)`;
      const kind = token === this.vocabulary.unknown ? "unknown unread" : "unread";
      return element("span", { class: kind, style: share > 1 ? { background: colour } : {} }, word);
    });
    const pieces = this.parts.flatMap(({ text: word, start }, step) => {
      const between = text.slice(before, start);
      before = start + word.length;
      return [between, this.spans[step]];
    });
    byId("words").replaceChildren(...pieces, text.slice(before));
    this.follow(this.reading.shown);
  }

  follow(step) {
    this.spans?.forEach((span, place) => span.classList.toggle("unread", place > step));
  }
}

let labels;
begin((model) => (labels = new TextLabels(model)));
