// Sound: notes like soft plucked strings, and a player that follows a roll while it changes.

const HARMONICS = [0, 1, 0.45, 0.25, 0.12, 0.07, 0.04];
const AHEAD = 0.14, TICK = 0.03; // seconds: how far notes are scheduled ahead, and how often
const RELEASE = 0.16;

class Sound {
  // `context`: an AudioContext, or an OfflineAudioContext.
  constructor(context) {
    this.context = context;
    this.wave = context.createPeriodicWave(new Float32Array(HARMONICS.length), new Float32Array(HARMONICS));
    this.out = context.createGain();
    this.out.gain.value = 0.5;
    const limit = context.createDynamicsCompressor(), room = context.createConvolver(), wet = context.createGain();
    room.buffer = this.impulse(1.4);
    wet.gain.value = 0.22;
    this.out.connect(limit);
    this.out.connect(room).connect(wet).connect(limit);
    limit.connect(context.destination);
    this.started = 0;
  }

  // Noise that fades: the echo of a small room.
  impulse(seconds) {
    const { sampleRate } = this.context, length = Math.ceil(seconds * sampleRate);
    const buffer = this.context.createBuffer(2, length, sampleRate);
    for (let channel = 0; channel < 2; ++channel) {
      const samples = buffer.getChannelData(channel);
      for (let at = 0; at < length; ++at) samples[at] = (2 * Math.random() - 1) * (1 - at / length) ** 3;
    }
    return buffer;
  }

  // Start a MIDI note; return a function that ends it. Without `seconds` it sounds until then.
  note(note, when = this.context.currentTime, seconds) {
    const frequency = 440 * 2 ** ((note - 69) / 12);
    const tone = this.context.createOscillator(), filter = this.context.createBiquadFilter();
    const loudness = this.context.createGain();
    tone.setPeriodicWave(this.wave);
    tone.frequency.value = frequency;
    filter.type = "lowpass";
    filter.frequency.setValueAtTime(Math.min(8 * frequency + 600, 9000), when);
    filter.frequency.setTargetAtTime(Math.min(3 * frequency + 200, 5000), when, 0.35);
    const loudest = 0.34 * Math.min(1.25, (300 / frequency) ** 0.25); // high notes sound louder
    loudness.gain.setValueAtTime(0, when);
    loudness.gain.linearRampToValueAtTime(loudest, when + 0.012);
    loudness.gain.setTargetAtTime(0.25 * loudest, when + 0.012, 1.1);
    tone.connect(filter).connect(loudness).connect(this.out);
    tone.start(when);
    ++this.started;
    const end = (time) => {
      loudness.gain.setTargetAtTime(0, time, RELEASE / 3);
      tone.stop(time + 3 * RELEASE);
    };
    if (seconds !== undefined) end(when + seconds);
    return () => end(this.context.currentTime);
  }
}

class Player {
  // `piece()` returns the roll; `timing()` the steps in a second; `changed()` is called at start and end.
  constructor(piece, timing, first, changed) {
    Object.assign(this, { piece, timing, first, changed, position: 0, timer: undefined, ends: [] });
  }

  // The sound, made at the first gesture: browsers allow none before.
  get sound() {
    if (!this.made) this.made = new Sound(new AudioContext());
    if (this.made.context.state === "suspended") this.made.context.resume();
    return this.made;
  }

  get playing() {
    return this.timer !== undefined;
  }

  // Where the head is, in steps.
  get now() {
    if (!this.playing) return this.position;
    return Math.max(this.from, this.from + (this.made.context.currentTime - this.start) * this.rate);
  }

  play(from = this.position) {
    this.stop();
    this.from = from < this.piece().length ? from : 0;
    this.start = this.sound.context.currentTime + 0.06;
    this.rate = this.timing();
    this.next = Math.ceil(this.from);
    this.begun = this.next;
    this.timer = setInterval(() => this.schedule(), 1000 * TICK);
    this.schedule();
    this.changed();
  }

  // Keep the place when the tempo changes.
  retime() {
    if (!this.playing) return;
    this.from = this.now;
    this.start = this.made.context.currentTime;
    this.rate = this.timing();
  }

  schedule() {
    const roll = this.piece(), { currentTime } = this.made.context;
    for (; this.next < roll.length; ++this.next) {
      const when = this.start + (this.next - this.from) / this.rate;
      if (when > currentTime + AHEAD) return;
      roll[this.next].forEach((on, key) => {
        if (!on || (this.next > this.begun && roll[this.next - 1][key])) return;
        let length = 1;
        while (this.next + length < roll.length && roll[this.next + length][key]) ++length;
        this.ends.push(this.sound.note(this.first + key, Math.max(when, currentTime), length / this.rate));
      });
    }
    if (this.now >= roll.length) this.stop(0);
  }

  stop(position = this.now) {
    clearInterval(this.timer);
    const played = this.playing;
    this.timer = undefined;
    this.position = position;
    if (position) this.ends.forEach((end) => end());
    this.ends = [];
    if (played) this.changed();
  }
}
