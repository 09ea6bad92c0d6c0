// Labels of digits: draw one; it is scaled and centred as the digits of MNIST are, and read pixel by pixel.

const SIZE = 280, SIDE = 28, BOX = 20, PEN = 22; // pixels of the drawing, the image, the digit in it, and the pen
const STROKES = [
  ["10,3 6,5 5,10 6,15 10,17 14,15 15,10 14,5 10,3"], ["8,5 10,3 10,17"], ["5,7 7,4 11,3 14,5 14,8 10,12 5,17 15,17"],
  ["5,4 10,3 14,5 13,8 9,10 13,11 15,14 12,17 8,17 5,16"], ["7,3 5,11 15,11", "12,5 12,18"],
  ["14,3 7,3 6,9 10,8 14,10 15,13 13,16 9,17 5,16"], ["13,3 8,7 6,12 7,16 11,17 14,15 14,12 11,10 7,12"],
  ["5,3 15,3 9,17"], ["10,10 6,7 7,4 10,3 13,4 14,7 10,10 6,13 7,16 10,17 13,16 14,13 10,10"],
  ["14,6 11,3 7,4 6,8 9,10 13,9 14,6 13,12 11,17"],
];

class Drawing {
  constructor(model) {
    this.reading = new Reading(model, "pixel");
    this.canvas = byId("drawing");
    Object.assign(this.canvas, { width: SIZE, height: SIZE });
    this.pen = this.canvas.getContext("2d", { willReadFrequently: true });
    Object.assign(this.pen, { lineWidth: PEN, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
    this.place = { x: SIZE / 2, y: SIZE / 2 };
    this.listen();
    byId("clear").addEventListener("click", () => this.clear());
    byId("examples").append(...STROKES.map((_, digit) => {
      const button = element("button", { type: "button", "aria-label": `Draw a ${digit}` }, String(digit));
      button.addEventListener("click", () => this.example(digit));
      return button;
    }));
    this.changed = debounced(() => this.read(), 60);
  }

  listen() {
    const at = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return { x: ((event.clientX - box.left) / box.width) * SIZE, y: ((event.clientY - box.top) / box.height) * SIZE };
    };
    let drawing = false;
    this.canvas.addEventListener("pointerdown", (event) => {
      drawing = true;
      this.canvas.setPointerCapture(event.pointerId);
      this.place = at(event);
      this.line(this.place);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (drawing) for (const each of event.getCoalescedEvents?.() || [event]) this.line(at(each));
    });
    for (const kind of ["pointerup", "pointercancel"]) this.canvas.addEventListener(kind, () => (drawing = false));
    this.canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] }[event.key];
      if (!by) return;
      event.preventDefault();
      const inside = (number) => Math.min(Math.max(number, 0), SIZE);
      const to = { x: inside(this.place.x + by[0]), y: inside(this.place.y + by[1]) };
      if (event.shiftKey) this.line(to);
      this.moveTo(to);
    });
    this.moveTo(this.place);
  }

  line(to) {
    this.pen.beginPath();
    this.pen.moveTo(this.place.x, this.place.y);
    this.pen.lineTo(to.x, to.y + 0.01);
    this.pen.stroke();
    this.moveTo(to);
    this.changed();
  }

  // Move the pen; the style shows where it is while keys move it.
  moveTo(place) {
    this.place = place;
    for (const at of ["x", "y"]) this.canvas.style.setProperty(`--${at}`, `${(100 * place[at]) / SIZE}%`);
  }

  clear() {
    this.pen.clearRect(0, 0, SIZE, SIZE);
    byId("seen").getContext("2d").clearRect(0, 0, SIDE, SIDE);
    this.reading.clear();
  }

  example(digit) {
    this.clear();
    for (const stroke of STROKES[digit]) {
      const points = stroke.split(" ").map((point) => point.split(",").map((number) => (Number(number) * SIZE) / BOX));
      this.pen.beginPath();
      this.pen.moveTo(...points[0]);
      for (let at = 1; at < points.length - 1; ++at) {
        const [x, y] = points[at], [nextX, nextY] = points[at + 1];
        this.pen.quadraticCurveTo(x, y, (x + nextX) / 2, (y + nextY) / 2);
      }
      this.pen.lineTo(...points.at(-1));
      this.pen.stroke();
    }
    this.changed();
  }

  // Return the 28 x 28 pixels from 0 to 1: the digit fits a box of 20, its centre of mass is in the middle.
  pixels() {
    const { data } = this.pen.getImageData(0, 0, SIZE, SIZE);
    const ink = (x, y) => (x < 0 || y < 0 || x >= SIZE || y >= SIZE ? 0 : data[4 * (y * SIZE + x) + 3] / 255);
    let [left, right, top, bottom, total, sumX, sumY] = [SIZE, -1, SIZE, -1, 0, 0, 0];
    for (let y = 0; y < SIZE; ++y) {
      for (let x = 0; x < SIZE; ++x) {
        const value = ink(x, y);
        if (!value) continue;
        [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
        [total, sumX, sumY] = [total + value, sumX + value * x, sumY + value * y];
      }
    }
    if (!total) return undefined;
    const scale = Math.max(right - left + 1, bottom - top + 1) / BOX, samples = 5;
    const [middleX, middleY] = [sumX / total, sumY / total], within = (at) => (at + 0.5) / samples - SIDE / 2;
    return Float32Array.from({ length: SIDE * SIDE }, (_, pixel) => {
      let sum = 0;
      for (let at = 0; at < samples * samples; ++at) {
        const x = (pixel % SIDE) + within(at % samples);
        const y = Math.floor(pixel / SIDE) + within(Math.floor(at / samples));
        sum += ink(Math.round(middleX + scale * x), Math.round(middleY + scale * y));
      }
      return sum / (samples * samples);
    });
  }

  async read() {
    const pixels = this.pixels();
    if (!pixels) return void this.reading.clear();
    const seen = byId("seen").getContext("2d"), image = seen.createImageData(SIDE, SIDE);
    pixels.forEach((value, pixel) => image.data.set([255, 255, 255, Math.round(255 * value)], 4 * pixel));
    seen.putImageData(image, 0, 0);
    await this.reading.read(about.order.map((pixel) => [pixels[pixel]]));
  }
}

let drawing;
begin((model) => (drawing = new Drawing(model)));
