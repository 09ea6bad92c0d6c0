"use strict";
// Tips of marks and terms: shown while one is pointed at, tapped, or reached with the keyboard.
const tip = document.getElementById("tip");
const EXPLAINED = ".mark, .term";
let shown = null;
function show(mark, x, y) {
  if (shown) shown.classList.remove("shown");
  shown = mark;
  tip.hidden = !mark;
  if (!mark) return;
  mark.classList.add("shown");
  const entry = mark.matches(".term") && document.getElementById(mark.getAttribute("aria-describedby"));
  tip.textContent = entry ? entry.previousSibling.textContent + "\n" + entry.textContent : mark.dataset.tip;
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(8, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = (y + 18 + box.height > innerHeight ? Math.max(8, y - box.height - 14) : y + 18) + "px";
}
function showAt(mark) {
  const box = mark.getBoundingClientRect();
  show(mark, box.right - 10, box.top);
}
function markAt(event) { return event.target instanceof Element ? event.target.closest(EXPLAINED) : null; }
document.addEventListener("pointermove", (event) => {
  const mark = markAt(event);
  if (mark || event.pointerType === "mouse") show(mark, event.clientX, event.clientY);
});
document.addEventListener("pointerdown", (event) => show(markAt(event), event.clientX, event.clientY));
document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });
document.addEventListener("scroll", () => {
  if (shown && shown === document.activeElement) showAt(shown);
  else show(null);
}, { passive: true, capture: true });
for (const term of document.querySelectorAll(".term")) {
  term.addEventListener("focus", () => { if (shown !== term) showAt(term); });
  term.addEventListener("blur", () => show(null));
}
for (const picture of document.querySelectorAll("svg[tabindex]")) {
  const marks = [...picture.querySelectorAll(".mark")];
  let at = -1;
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step || !marks.length) return;
    event.preventDefault();
    at = at < 0 ? 0 : (at + step + marks.length) % marks.length;
    showAt(marks[at]);
  });
  picture.addEventListener("blur", () => { at = -1; show(null); });
}

// Commands can be copied; a piece shows where it plays.
for (const button of document.querySelectorAll(".copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code); // for the reader to copy
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });
}

for (const piece of document.querySelectorAll(".piece")) {
  const [score, audio] = [piece.querySelector(".score"), piece.querySelector("audio")];
  if (!score || !audio) continue;
  const [picture, head] = [score.firstElementChild, document.createElement("div")];
  const { left, right, tail } = score.dataset;
  head.className = "head";
  head.hidden = true;
  score.append(head);
  const follow = () => {
    const part = Math.min(audio.currentTime / (audio.duration - tail), 1);
    const x = (Number(left) + (picture.naturalWidth - left - right) * part) * picture.width / picture.naturalWidth;
    head.hidden = false;
    head.style.left = x + "px";
    if (x < score.scrollLeft || x > score.scrollLeft + 0.8 * score.clientWidth) score.scrollLeft = x - 0.1 * score.clientWidth;
    if (!audio.paused) requestAnimationFrame(follow);
  };
  audio.addEventListener("play", follow);
  audio.addEventListener("seeked", follow);
}

// The table of runs: sort by a column, filter by words.
const table = document.querySelector("table.runs");
const heads = [...table.tHead.rows[0].cells];
function sortKey(body, column) {
  const cell = body.rows[0].cells[column];
  const value = cell.dataset.value;
  return value === undefined ? cell.textContent.trim() : value === "" ? null : Number(value);
}
function sortBy(column, descending) {
  heads.forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const keyed = [...table.tBodies].map((body) => [sortKey(body, column), body]);
  keyed.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    const order = typeof a === "number" ? a - b : a.localeCompare(b);
    return descending ? -order : order;
  });
  table.append(...keyed.map(([, body]) => body));
}
heads.forEach((head, column) => {
  head.firstElementChild.addEventListener("click", () => {
    sortBy(column, head.getAttribute("aria-sort") === "ascending");
    keep();
  });
});
const filter = document.querySelector(".filter");
const search = filter.querySelector("input");
filter.hidden = false;
function cut() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let left = 0;
  for (const body of table.tBodies) {
    const summary = body.querySelector("summary");
    const text = (body.rows[0].textContent + " " + summary.textContent).toLowerCase();
    body.hidden = !words.every((word) => text.includes(word));
    left += !body.hidden;
  }
  filter.lastElementChild.textContent = words.length ? left + " shown" : "";
}
search.addEventListener("input", () => { cut(); keep(); });

// Keep the reader's place in the history entry, so that reloading the page loses nothing.
const live = document.querySelector(".live");
const every = Number(document.body.dataset.every);
let paused = false;
const focusable = () => [...document.querySelectorAll("a, button, summary, [tabindex]")];
function keyOf(details) { return details.dataset.key || details.id; }
function keep() {
  const open = [...document.querySelectorAll("details[open]")].map(keyOf);
  const sorted = heads.findIndex((head) => head.hasAttribute("aria-sort"));
  const descending = sorted >= 0 && heads[sorted].getAttribute("aria-sort") === "descending";
  const scrolled = [...document.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
  const focus = focusable().indexOf(document.activeElement);
  history.replaceState({ y: scrollY, open, sorted, descending, scrolled, focus, words: search.value, paused }, "");
}
function restore(state) {
  const open = new Set(state.open);
  for (const details of document.querySelectorAll("details")) details.open = open.has(keyOf(details));
  if (state.sorted >= 0) sortBy(state.sorted, state.descending);
  search.value = state.words;
  cut();
  document.querySelectorAll(".scroll").forEach((box, index) => { box.scrollLeft = state.scrolled[index] || 0; });
  paused = state.paused;
  if (state.focus >= 0) focusable()[state.focus]?.focus({ preventScroll: true, focusVisible: false });
  scrollTo({ top: state.y, behavior: "instant" });
}
function busy() {
  const playing = [...document.querySelectorAll("audio")].some((audio) => !audio.paused);
  return paused || playing || shown || document.hidden || document.activeElement === search || !getSelection().isCollapsed;
}
if (every) {
  history.scrollRestoration = "manual";
  const pause = live.querySelector("button");
  const say = () => { pause.setAttribute("aria-pressed", paused); pause.textContent = paused ? "Resume" : "Pause"; };
  pause.addEventListener("click", () => { paused = !paused; say(); keep(); });
  live.hidden = false; // before the scroll position is restored: it moves what is below it
  if (history.state && Array.isArray(history.state.open)) restore(history.state);
  say();
  setInterval(() => { if (!busy()) { keep(); location.reload(); } }, every * 1000);
}
