// Write a piano roll, rows of 88 keys, as a MIDI file: the same bytes as `rru compose`.

const TICKS = 480, VELOCITY = 80;

// Return the notes of a roll, by step and then by key; consecutive steps of a key are one note.
function notesOf(roll) {
  const notes = [];
  roll.forEach((keys, start) => keys.forEach((on, key) => {
    if (!on || (start && roll[start - 1][key])) return;
    let end = start;
    while (end < roll.length && roll[end][key]) ++end;
    notes.push({ key, start, length: end - start });
  }));
  return notes;
}

// A number in bytes of seven bits; all but the last have the highest bit set.
function variableLength(number) {
  const bytes = [number & 127];
  while ((number = Math.floor(number / 128))) bytes.unshift((number & 127) | 128);
  return bytes;
}

function bigEndian(number, bytes) {
  return Array.from({ length: bytes }, (_, place) => Math.floor(number / 256 ** (bytes - 1 - place)) & 255);
}

// `first`: the MIDI note of key 0; `beat`: steps in a quarter note; `tempo`: quarter notes in a minute.
function midiFile(roll, { first, beat, tempo }) {
  const step = Math.max(Math.floor(TICKS / beat), 1);
  const changes = notesOf(roll).flatMap(({ key, start, length }) => [
    { time: start * step, on: 1, key }, { time: (start + length) * step, on: 0, key },
  ]);
  changes.sort((a, b) => a.time - b.time || a.on - b.on || a.key - b.key);
  const track = [0, 0xff, 0x51, 3, ...bigEndian(Math.round(60e6 / tempo), 3)];
  let now = 0, before = 0;
  for (const { time, on, key } of changes) {
    const status = on ? 0x90 : 0x80;
    track.push(...variableLength(time - now), ...(status === before ? [] : [status]), first + key, on ? VELOCITY : 0);
    [now, before] = [time, status];
  }
  track.push(...variableLength(roll.length * step - now), 0xff, 0x2f, 0);
  const letters = (text) => Array.from(text, (letter) => letter.charCodeAt(0));
  const head = [...letters("MThd"), ...bigEndian(6, 4), 0, 0, 0, 1, ...bigEndian(step * beat, 2)];
  return new Uint8Array([...head, ...letters("MTrk"), ...bigEndian(track.length, 4), ...track]);
}
