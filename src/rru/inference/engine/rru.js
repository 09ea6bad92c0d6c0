"use strict";
// A model in the WebAssembly engine. `modules` are the bytes of rru-simd.wasm and rru.wasm, `blob` those of model.rru.

const RRU_FIELDS = [
  "kind", "cell", "layers", "inputs", "hidden", "outputs", "option", "normalize", "activate", "tokens", "head",
  "logits", "keys", "reading", "padding", "unknown", "first", "beat", "scaled", "names", "members", "context",
  "horizon", "patch", "season", "past", "known", "series", "around", "below", "chord_hidden", "chord_outputs",
  "bar",
];

class RruModel {
  static async load(modules, blob) {
    const simd = WebAssembly.validate(modules[0]);
    const { instance } = await WebAssembly.instantiate(modules[simd ? 0 : 1], {});
    return new RruModel(instance.exports, blob, simd);
  }

  constructor(engine, blob, simd) {
    this.engine = engine;
    this.simd = simd;
    const status = this.reserve(4);
    const place = this.reserve(blob.length);
    new Uint8Array(engine.memory.buffer, place, blob.length).set(blob);
    const bytes = engine.rru_size(place, blob.length, status);
    this.model = bytes && engine.rru_init(place, blob.length, this.reserve(bytes), bytes, status);
    if (!this.model) {
      const message = engine.rru_message(new Int32Array(engine.memory.buffer, status, 1)[0]);
      throw new Error(this.text(message));
    }
    this.numbers = {};
    RRU_FIELDS.forEach((field, index) => (this.numbers[field] = engine.rru_number(this.model, index)));
    const { inputs, logits, keys } = this.numbers;
    this.count = status;
    this.places = {
      input: this.reserve(4 * inputs),
      values: this.reserve(8 * inputs),
      chances: this.reserve(4 * logits),
      chord: this.reserve(keys || 1),
      scaling: this.reserve(40),
    };
  }

  reserve(bytes) {
    const place = this.engine.reserve(bytes);
    if (!place) throw new Error("there is not enough memory for the model");
    return place;
  }

  floats(place, count) {
    return new Float32Array(this.engine.memory.buffer, place, count); // memory may have grown since the last call
  }

  text(place, length) {
    const bytes = new Uint8Array(this.engine.memory.buffer);
    const end = length === undefined ? bytes.indexOf(0, place) : place + length;
    return new TextDecoder().decode(bytes.subarray(place, end));
  }

  reset() {
    this.engine.rru_reset(this.model);
  }

  step(features) {
    this.floats(this.places.input, this.numbers.inputs).set(features);
    return this.floats(this.engine.rru_step(this.model, this.places.input), this.numbers.logits);
  }

  stepToken(token) {
    return this.floats(this.engine.rru_step_token(this.model, token), this.numbers.logits);
  }

  scaled(values) {
    new Float64Array(this.engine.memory.buffer, this.places.values, this.numbers.inputs).set(values);
    this.engine.rru_scale(this.model, this.places.values, this.places.input);
    return this.floats(this.places.input, this.numbers.inputs).slice();
  }

  name(index) {
    const bytes = this.nameBytes(index);
    return bytes && new TextDecoder().decode(bytes);
  }

  // The name of a token, class or series as bytes: a token of bytes need not be a whole character.
  nameBytes(index) {
    const place = this.engine.rru_name(this.model, index, this.count);
    if (!place) return undefined;
    const { buffer } = this.engine.memory, length = new Uint32Array(buffer, this.count, 1)[0];
    return new Uint8Array(buffer, place, length).slice();
  }

  get state() {
    const place = this.engine.rru_state(this.model, this.count);
    return this.floats(place, new Uint32Array(this.engine.memory.buffer, this.count, 1)[0]);
  }

  seed(seed) {
    this.engine.rru_seed(this.model, seed);
  }

  random() {
    return this.engine.rru_random(this.model);
  }

  chances() {
    this.engine.rru_chances(this.model, this.places.chances);
    return this.floats(this.places.chances, this.numbers.logits).slice();
  }

  token(temperature = 1, most = 0) {
    return this.engine.rru_token(this.model, temperature, most) >>> 0;
  }

  chord(temperature = 1, voices = 0) {
    this.engine.rru_chord(this.model, temperature, voices, this.places.chord);
    return new Uint8Array(this.engine.memory.buffer, this.places.chord, this.numbers.keys).slice();
  }

  // Return the quantiles of each step to be forecast, after `values` of a series: the number of one that the model was
  // trained on, or a scaling as in rru.h, { floor, centre, unit, least, width }. `inputs` as for rru_forecast.
  forecast(values, series = 0, inputs = undefined) {
    const { horizon, context, past, known } = this.numbers;
    if (!(this.room >= values.length)) {
      this.room = 2 * values.length;
      this.history = this.reserve(8 * this.room);
      this.quantiles = this.quantiles || this.reserve(40 * horizon);
    }
    new Float64Array(this.engine.memory.buffer, this.history, values.length).set(values);
    if (typeof series === "number") {
      this.engine.rru_scaling_of(this.places.scaling, this.model, series);
    } else {
      const { floor, centre, unit, least, width } = series, scaling = this.places.scaling;
      new Float64Array(this.engine.memory.buffer, scaling, 4).set([floor, centre, unit, least]);
      this.floats(scaling + 32, 1)[0] = width;
    }
    let given = 0;
    if (inputs) {
      given = this.places.inputs = this.places.inputs || this.reserve(4 * (context + horizon) * (past + known));
      this.floats(given, (context + horizon) * (past + known)).set(inputs);
    }
    const done = this.engine.rru_forecast(
      this.model, this.places.scaling, this.history, values.length, given, this.quantiles,
    );
    if (!done) throw new Error("the series must have a known value");
    const all = new Float64Array(this.engine.memory.buffer, this.quantiles, 5 * horizon);
    return Array.from({ length: horizon }, (_, step) => Array.from(all.subarray(5 * step, 5 * step + 5)));
  }
}

if (typeof module !== "undefined") module.exports = { RruModel, RRU_FIELDS };
