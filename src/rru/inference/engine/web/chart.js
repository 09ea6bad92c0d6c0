// Parts of charts.

function pathOf(points) {
  return points.map(([x, y], number) => `${number ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
}

// A line across a chart, and the value that it stands for.
function gridLine(left, right, y, text) {
  return [
    element("svg:line", { class: "grid", x1: left, x2: right, y1: y, y2: y }),
    element("svg:text", { x: left - 8, y: y + 4, "text-anchor": "end" }, text),
  ];
}

// At most six round numbers from `low` to `high`.
function roundValues(low, high) {
  const size = 10 ** Math.floor(Math.log10((high - low) / 5));
  const step = size * ([1, 2, 5].find((factor) => (high - low) / (size * factor) <= 5) || 10);
  const first = Math.ceil(low / step), count = Math.floor(high / step) - first + 1;
  return Array.from({ length: Math.max(Math.min(count, 8), 0) }, (_, number) => (first + number) * step);
}
