// The timeline: a lane for each stream, exposed intervals and the host.

let packed, lanes = [], view, bounds, chosen = null, highlight = 0, hover = null;
const zero = () => steady ? steady[0] : 0;

function makeLanes() {
  const order = packed.streams.map((s, i) => i).filter((i) => packed.streams[i].n > 0);
  for (const i of order) {
    const s = packed.streams[i];
    lanes.push({...s, kind: "stream", height: i === 0 ? 30 : 22});
    if (i === 0) lanes.push(exposedLane());
  }
  if (order[0] !== 0) lanes.unshift(exposedLane());
  if (packed.worked.length)
    lanes.push({
      kind: "worked",
      name: "host's own work",
      n: packed.worked.length,
      list: packed.worked,
      height: 22
    });
  const marks = memoryFacts.marks, phases = [];
  for (let i = 1; i < marks.length; ++i) {
    const from = marks[i - 1].host_s * 1e9,
          name = marks[i].mark.split(".").pop().replace(/^after_/, "");
    if (marks[i].host_s * 1e9 > bounds[0])
      phases.push({start: from, length: marks[i].host_s * 1e9 - from, name: words(name)});
  }
  if (phases.length)
    lanes.push(
        {kind: "host", name: "host: what it issues", n: phases.length, list: phases, height: 18});
  lanes.forEach(addLooks);
}
function exposedLane() {
  const list = packed.exposed.flat();
  return {kind: "exposed", name: "exposed communication", n: list.length, list, height: 16};
}
const startOf = (lane, i) => lane.list ? lane.list[i].start : lane.start[i];
const lengthOf = (lane, i) => lane.list ? lane.list[i].length : lane.length[i];

// The first of the lane that ends behind t.
function firstBehind(lane, t) {
  let lo = 0, hi = lane.n;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (startOf(lane, mid) + lengthOf(lane, mid) > t)
      hi = mid;
    else
      lo = mid + 1;
  }
  return lo;
}

const AXIS = 22, PHASES = 18, LABEL = 15, GAP = 7;
function laneTop(k) {
  let y = AXIS + PHASES + 4;
  for (let i = 0; i < k; ++i) y += LABEL + lanes[i].height + GAP;
  return y;
}
const xOf = (t, width) => (t - view[0]) / (view[1] - view[0]) * width;
const tOf = (x, width) => view[0] + x / width * (view[1] - view[0]);

function axis(g, width, height) {
  const z = zero(), {step, at} = ticks(view[0] - z, view[1] - z, width / 110);
  const unit = step >= 1e8 ? [1e9, "s"] :
      step >= 1e5          ? [1e6, "ms"] :
      step >= 1e2          ? [1e3, "\u00b5s"] :
                             [1, "ns"];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit[0]) - 1e-9));
  g.font = font(11);
  g.textBaseline = "middle";
  for (const t of at) {
    const x = Math.round(xOf(t + z, width)) + 0.5;
    g.fillStyle = color("line");
    g.fillRect(x - 0.5, AXIS - 4, 1, height - AXIS + 4);
    g.fillStyle = color("soft");
    const text = `${fixed(t === 0 ? 0 : t / unit[0], digits)} ${unit[1]}`.replace(/^-/, "\u2212");
    const w = g.measureText(text).width;
    if (x + 3 + w < width) g.fillText(text, x + 3, AXIS / 2 - 1);
  }
}

function bands(g, width) {
  g.font = font(11, 500);
  const z = [...data.phases.map(([name, a, b]) => [name, a, b, name])];
  const n = data.first_step;
  steps.slice(0, -1).forEach(([a, b], i) => z.unshift([`step ${n + i + 1}`, a, b, "line"]));
  for (const [text, a, b, c] of z) {
    const x0 = Math.max(0, xOf(a, width)), x1 = Math.min(width, xOf(b, width));
    if (x1 - x0 < 1) continue;
    g.fillStyle = color(c);
    g.fillRect(x0, AXIS, x1 - x0 - 1, PHASES - 3);
    if (g.measureText(text).width + 8 > x1 - x0) continue;
    g.fillStyle = color("soft");
    g.fillText(text, x0 + 4, AXIS + PHASES / 2 - 1);
  }
}

function exposedBands(g, width, height) {
  g.fillStyle = color("exposed-wash");
  for (const lane of lanes) {
    if (lane.kind !== "exposed") continue;
    for (let i = firstBehind(lane, view[0]); i < lane.n && startOf(lane, i) < view[1]; ++i) {
      const x0 = xOf(startOf(lane, i), width),
            x1 = xOf(startOf(lane, i) + lengthOf(lane, i), width);
      if (x1 - x0 >= 0.4)
        g.fillRect(x0, AXIS + PHASES, Math.max(1, x1 - x0), height - AXIS - PHASES);
    }
  }
}

const LOOKS = [
  "gemm", "attention", "kernel", "gather", "scatter", "allreduce", "broadcast", "copy", "host",
  "exposed"
];
// Of each launch its colour, as a place in LOOKS.
function addLooks(lane) {
  if (lane.kind !== "stream") {
    lane.look =
        new Uint8Array(lane.n).fill(LOOKS.indexOf(lane.kind === "exposed" ? "exposed" : "host"));
    return;
  }
  const cls = packed.cls,
        of = Uint8Array.from(
            cls.kind,
            (kind, c) => LOOKS.indexOf(cls.flags[c] & 2 ? "attention" : colorOfKind[kind]));
  lane.look = Uint8Array.from(lane.cls, (c) => of[c]);
}
function spanText(lane, i) {
  if (lane.kind !== "stream") return lane.list[i].name;
  const cls = packed.cls, c = lane.cls[i], group = cls.group[c];
  return isCollective(cls.kind[c]) && group ? data.groups[group - 1] : data.names[cls.name[c]];
}
const isStrong = (lane, i) =>
    highlight === 0 || lane.kind !== "stream" || packed.cls.group[lane.cls[i]] === highlight;

function hatch(g, x, y, w, h) {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = color("sheet");
  g.globalAlpha = 0.55;
  g.lineWidth = 1.4;
  g.beginPath();
  for (let k = Math.floor(x / 6) * 6 - h; k < x + w; k += 6) {
    g.moveTo(k, y + h);
    g.lineTo(k + h, y);
  }
  g.stroke();
  g.restore();
}

function drawLane(g, width, lane, top) {
  g.font = font(11);
  g.fillStyle = color("soft");
  g.textBaseline = "middle";
  g.fillText(lane.name, 1, top + LABEL / 2);
  const y = top + LABEL, h = lane.height;
  g.fillStyle = color("line");
  g.fillRect(0, y + h, width, 1);
  const first = firstBehind(lane, view[0]);
  if (first >= lane.n || startOf(lane, first) >= view[1]) {
    const text = lane.kind === "exposed"        ? "none" :
        lane.kind === "host" && first >= lane.n ? "ahead: it had issued all of this before" :
                                                  "nothing here";
    g.fillStyle = color("faint");
    g.fillText(text, 1, y + h / 2 + 0.5);
  }
  // What is narrower than a pixel is drawn as the colour that has most of the pixel.
  const scale = width / (view[1] - view[0]), parts = new Float64Array(2 * LOOKS.length);
  let pixel = -1, covered = 0;
  const flush = () => {
    if (covered === 0) return;
    let most = 0;
    for (let k = 1; k < parts.length; ++k)
      if (parts[k] > parts[most]) most = k;
    g.globalAlpha = (most < LOOKS.length ? 0.15 : 1) * (0.55 + 0.45 * Math.min(1, covered));
    g.fillStyle = color(LOOKS[most % LOOKS.length]);
    g.fillRect(pixel, y, 1, h);
    parts.fill(0);
    covered = 0;
  };
  const starts = lane.start, lengths = lane.length, list = lane.list;
  for (let i = first; i < lane.n; ++i) {
    const start = list ? list[i].start : starts[i];
    if (start >= view[1]) break;
    const w = (list ? list[i].length : lengths[i]) * scale, x = (start - view[0]) * scale;
    const look = lane.look[i], strong = isStrong(lane, i);
    if (w < 1) {
      const p = Math.floor(x);
      if (p !== pixel) {
        flush();
        pixel = p;
      }
      parts[look + (strong ? LOOKS.length : 0)] += w + 1e-6;
      covered += w + 1e-6;
      continue;
    }
    flush();
    const x0 = Math.max(-2, x), x1 = Math.min(width + 2, x + w), name = LOOKS[look];
    g.globalAlpha = strong ? 1 : 0.15;
    g.fillStyle = color(name);
    g.fillRect(x0, y, x1 - x0 > 3 ? x1 - x0 - 0.6 : x1 - x0, h);
    if (lane.kind === "exposed" && x1 - x0 > 3) hatch(g, x0, y, x1 - x0 - 0.6, h);
    if (x1 - x0 > 34 && lane.kind !== "exposed") {
      g.save();
      g.beginPath();
      g.rect(x0, y, x1 - x0 - 3, h);
      g.clip();
      g.fillStyle = inkOn(name);
      g.fillText(spanText(lane, i), Math.max(x0, 0) + 4, y + h / 2 + 0.5);
      g.restore();
    }
  }
  flush();
  g.globalAlpha = 1;
  for (const [at, strong] of [[chosen, true], [hover, false]]) {
    if (!at || at.lane !== lane) continue;
    const x0 = xOf(startOf(lane, at.i), width),
          x1 = xOf(startOf(lane, at.i) + lengthOf(lane, at.i), width);
    g.strokeStyle = color("ink");
    g.lineWidth = strong ? 2 : 1;
    g.strokeRect(x0 - 0.5, y - 0.5, Math.max(2, x1 - x0), h + 1);
  }
}

// Black or white, whichever is told from the colour better.
const inks = {};
function inkOn(name) {
  const key = name + isDark();
  if (!(key in inks)) {
    const hex = color(name).replace("#", "");
    const [r, gr, b] = [0, 2, 4].map((i) => (parseInt(hex.slice(i, i + 2), 16) / 255) ** 2.2);
    inks[key] = 0.2126 * r + 0.7152 * gr + 0.0722 * b > 0.22 ? "#14181c" : "#ffffff";
  }
  return inks[key];
}

function drawLanes() {
  const height = laneTop(lanes.length) + 2;
  const [g, width] = prepare(byId("lanes"), height);
  axis(g, width, height);
  exposedBands(g, width, height);
  bands(g, width);
  lanes.forEach((lane, k) => drawLane(g, width, lane, laneTop(k)));
  drawCursor(g, width, AXIS, height);
}

// Where the pointer is, in both charts.
let cursor = null;
function drawCursor(g, width, top, bottom) {
  if (cursor === null) return;
  g.fillStyle = color("ink");
  g.globalAlpha = 0.4;
  g.fillRect(Math.round(xOf(cursor, width)), top, 1, bottom - top);
  g.globalAlpha = 1;
}
