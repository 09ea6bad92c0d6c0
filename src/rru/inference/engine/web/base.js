"use strict";
// What all pages share: the model in the page, work in slices, messages and downloads.

const SLICE = 12; // milliseconds of work, after which the browser may draw
const MEASURED = 150; // milliseconds in which the time of a step is measured
const about = JSON.parse(document.getElementById("about").textContent);
const byId = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const dark = matchMedia("(prefers-color-scheme: dark)");

function bytesOf(id) {
  return Uint8Array.from(atob(byId(id).textContent), (letter) => letter.charCodeAt(0));
}

// Make an element. Texts from the model's data are only ever set as text.
function element(name, attributes = {}, ...children) {
  const svg = name.startsWith("svg:"), space = svg ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
  const made = document.createElementNS(space, name.replace("svg:", ""));
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") for (const [property, set] of Object.entries(value)) made.style.setProperty(property, set);
    else if (value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

function counted(count, noun) {
  return `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
}

// Show a problem, or remove it if there is no text.
function complain(text = "") {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

// Say how much of `whole` was read.
function sayRead(count, whole) {
  say(`Reading: ${Math.round((100 * count) / whole)} %`);
}

function say(text) {
  byId("status").textContent = text;
}

function debounced(work, milliseconds = 120) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, milliseconds);
  };
}

// Call `draw` in the next frame after the width of an element has changed: at once, it could change it again.
function onWidth(place, draw) {
  let width = 0;
  new ResizeObserver(() => requestAnimationFrame(() => {
    if (place.clientWidth !== width) draw();
    width = place.clientWidth;
  })).observe(place);
}

// Run the steps of a generator in slices; return what it returns. A later call ends an earlier one, which returns
// undefined: there is one model, with one state. `show` is called after each slice with what was yielded last.
let current;
async function inSlices(steps, show) {
  const mine = (current = Symbol("job"));
  while (current === mine) {
    const end = performance.now() + SLICE;
    let step;
    do step = steps.next();
    while (!step.done && performance.now() < end);
    if (step.done) return step.value;
    if (show) show(step.value);
    await new Promise((done) => setTimeout(done));
  }
  return undefined;
}

function stopWork() {
  current = undefined;
}

function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

// Let a slider show its value beside it, and call `change` when it is moved.
function slider(id, shown, change) {
  const input = byId(id), output = byId(id + "-value");
  const show = () => {
    output.textContent = shown(Number(input.value));
    input.setAttribute("aria-valuetext", output.textContent);
  };
  input.addEventListener("input", () => {
    show();
    change(Number(input.value));
  });
  show();
  return input;
}

// Return the microseconds of one call, the shortest of several rounds.
function microseconds(call, milliseconds = MEASURED) {
  const end = performance.now() + milliseconds;
  let best = Infinity, count = 1;
  while (performance.now() < end) {
    const start = performance.now();
    for (let each = 0; each < count; ++each) call();
    const passed = performance.now() - start;
    if (passed < 2) count *= 2;
    else best = Math.min(best, (1000 * passed) / count);
  }
  return best;
}

// Return the microseconds of a step, or of a forecast, of another model than that of the page, whose state stays.
function stepTime(model) {
  const { tokens, context, inputs, unknown, keys } = model.numbers, x = new Float32Array(inputs).fill(keys ? 0 : 0.5);
  if (keys) for (const key of [27, 39, 43, 46]) x[key] = 1; // a chord of four voices
  if (context) return microseconds(() => model.forecast(Array.from({ length: context }, (_, t) => 1 + (t % 7))));
  return microseconds(tokens ? () => model.stepToken(unknown) : () => model.step(x));
}

function showFacts(simd) {
  const show = (facts) => byId("facts").append(
    ...Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );
  show({ ...about.facts, engine: `WebAssembly ${simd ? "with" : "without"} vector instructions` });
  byId("facts").parentElement.addEventListener("toggle", async () => {
    const time = Number(stepTime(await loaded()).toPrecision(2)).toLocaleString("en");
    show({ [about.page === "series" ? "a forecast" : "a step"]: `${time} microseconds in this browser` });
  }, { once: true });
}

function loaded() {
  return RruModel.load(["rru-simd.wasm", "rru.wasm"].map(bytesOf), bytesOf("model.rru"));
}

// What goes wrong later is shown too.
addEventListener("error", ({ error }) => error && complain(`Something went wrong: ${error.message}`));
addEventListener("unhandledrejection", (event) => {
  if (byId("problem").hidden) complain(`Something went wrong: ${event.reason?.message || event.reason}`);
});

// Load the model and hand it to the page; show why if that is not possible.
async function begin(start) {
  try {
    if (typeof WebAssembly !== "object") throw new Error("this browser has no WebAssembly");
    const model = await loaded();
    showFacts(model.simd);
    start(model);
  } catch (error) {
    document.body.classList.add("broken");
    complain(`The model in this page cannot be used: ${error.message}.`);
    throw error;
  }
}
