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
    if (this.byWords || this.reading === READING.lower) return "word";
    return this.reading === READING.bytes ? "byte" : "character";
  }

  // Whether a token is ever written: padding and unknown ones are not.
  isWritten(token) {
    return token !== this.padding && token !== this.unknown;
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
      const number = (byte) => this.number(String.fromCharCode(byte));
      return Array.from(encoder.encode(letter), (byte) => ({ text: letter, start: at, token: number(byte) }));
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
    let name = this.reading === READING.lower ? text.toLowerCase() : text;
    if (this.reading === READING.characters && text === " ") name = "_";
    return { text, start, token: this.number(latin(encoder.encode(name))) };
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
      const bytes = (token) => (token === this.unknown ? encoder.encode("\ufffd") : this.bytes[token]);
      return new TextDecoder().decode(new Uint8Array(tokens.flatMap((token) => [...bytes(token)])));
    }
    const names = tokens.map((token) => this.names[token]);
    if (this.reading === READING.characters) return names.join("").replaceAll("_", " ");
    if (!this.byWords) return names.join("");
    let text = "", last = before === undefined ? undefined : this.names[before];
    for (const name of names) {
      const marks = this.reading === READING.marked && (CLOSING.has(name) || OPENING.has(last));
      text += last === undefined || marks ? name : ` ${name}`;
      last = name;
    }
    return text;
  }

  // Return a token as it is shown: with signs for what cannot be seen.
  shown(token) {
    const name = this.reading === READING.characters && this.names[token] === "_" ? " " : this.names[token];
    const seen = { " ": "space", "\n": "new line", "\t": "tab", "\r": "return" }[name];
    if (seen) return { text: seen, sign: true };
    const [byte] = this.bytes[token];
    const part = this.reading === READING.bytes && byte > 127; // of a character
    return part ? { text: `byte ${byte}`, sign: true } : { text: name, sign: false };
  }
}
