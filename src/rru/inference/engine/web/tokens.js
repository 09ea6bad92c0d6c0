// Words and characters: divide a text into the tokens that a model reads, and write tokens as text.

const READING = { words: 2, marked: 3, characters: 4, points: 5, bytes: 6, lower: 7 }; // rru_reading in rru.h
const CLOSING = new Set(".,;:!?)]}%\u2019\u201d"), OPENING = new Set("([{\u201c\u2018");
const MARKED = /<[\p{L}\p{N}_]+>|[\p{L}\p{N}_]+(?:['\u2019-][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\s]/gu;
const LOWER = /[\p{L}\p{N}]+(?:'[\p{L}\p{N}]+)*/gu;
const encoder = new TextEncoder();
const latin = (bytes) => Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");

class Vocabulary {
  constructor(model) {
    const { tokens, reading, unknown, padding } = model.numbers;
    Object.assign(this, { reading, unknown, padding, size: tokens });
    this.bytes = Array.from({ length: tokens }, (_, token) => model.nameBytes(token));
    this.numbers = new Map(this.bytes.map((bytes, token) => [latin(bytes), token]));
    this.names = this.bytes.map((bytes) => new TextDecoder().decode(bytes));
  }

  get byWords() {
    return this.reading === READING.words || this.reading === READING.marked;
  }

  get noun() {
    return { [READING.words]: "word", [READING.marked]: "word", [READING.bytes]: "byte", [READING.lower]: "word" }[this.reading] || "character";
  }

  // Return the parts of a text, { text, start, token }; `start` is where it begins in the text.
  parts(text) {
    const found = (pattern) => Array.from(text.matchAll(pattern), (match) => this.part(match[0], match.index));
    if (this.reading === READING.words) return found(/\S+/g);
    if (this.reading === READING.marked) return found(MARKED);
    if (this.reading === READING.lower) return found(LOWER);
    let start = 0;
    return Array.from(text).flatMap((letter) => {
      const at = start;
      start += letter.length;
      if (this.reading !== READING.bytes) return [this.part(letter, at)];
      return Array.from(encoder.encode(letter), (byte) => ({ text: letter, start: at, token: this.number(String.fromCharCode(byte)) }));
    });
  }

  // Return the last `most` parts of a text, and whether there are more; of a long text only the end is looked at.
  lastParts(text, most) {
    const length = most * (this.byWords || this.reading === READING.lower ? 24 : 4), long = text.length > length;
    const end = long ? text.length - length : 0, all = this.parts(text.slice(end));
    for (const part of all) part.start += end;
    return { parts: all.slice(-most), cut: long || all.length > most };
  }

  part(text, start) {
    const written = this.reading === READING.lower ? text.toLowerCase() : this.reading === READING.characters && text === " " ? "_" : text;
    return { text, start, token: this.number(latin(encoder.encode(written))) };
  }

  number(key) {
    return this.numbers.get(key) ?? this.unknown;
  }

  // Return the parts that are not in the vocabulary, without duplicates.
  unknownIn(parts) {
    return [...new Set(parts.filter(({ token }) => token === this.unknown).map(({ text }) => text))];
  }

  // Return what `tokens` add to a text that ends with `before`, another token or undefined.
  text(tokens, before) {
    if (this.reading === READING.bytes) {
      const bytes = tokens.flatMap((token) => Array.from(token === this.unknown ? encoder.encode("\ufffd") : this.bytes[token]));
      return new TextDecoder().decode(new Uint8Array(bytes));
    }
    let text = "";
    for (const token of tokens) {
      const name = this.names[token], after = before === undefined ? "" : this.names[before];
      const joined = before === undefined || (this.reading === READING.marked && (CLOSING.has(name) || OPENING.has(after)));
      text += !this.byWords ? (this.reading === READING.characters ? name.replaceAll("_", " ") : name) : joined ? name : ` ${name}`;
      before = token;
    }
    return text;
  }

  // Return a token as it is shown: with signs for what cannot be seen.
  shown(token) {
    const name = this.reading === READING.characters && this.names[token] === "_" ? " " : this.names[token];
    const seen = { " ": "space", "\n": "new line", "\t": "tab", "\r": "return" }[name];
    if (seen) return { text: seen, sign: true };
    const [byte] = this.bytes[token];
    return this.reading === READING.bytes && byte > 127 ? { text: `byte ${byte}`, sign: true } : { text: name, sign: false };
  }
}
