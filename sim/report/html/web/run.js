// The page of a run. Times are whole nanoseconds from the start of the run.
const report = data.report, facts = data.facts, memoryFacts = report.memory;
const steps = data.steps, steady = steps.length ? steps[steps.length - 1] : null;
const failed = memoryFacts.oom_message !== null && steps.length === 0;

// Columns in the order in which page_run.cpp writes them.
async function read_packed() {
  const text = atob(byId("packed").textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const b = new Uint8Array(await new Response(stream).arrayBuffer());
  let at = 0;
  const next = () => {
    let n = 0, scale = 1, byte;
    do { byte = b[at++]; n += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return n;
  };
  const signed = () => { const n = next(); return n % 2 ? -(n + 1) / 2 : n / 2; };
  const column = (n, read, Type) => { const c = new Type(n); for (let i = 0; i < n; ++i) c[i] = read(); return c; };

  const count = next();
  const cls = {};
  for (const name of ["kind", "name", "group", "comm", "bytes", "flops", "flags"])
    cls[name] = column(count, next, Float64Array);
  const streams = data.streams.map((name) => {
    const n = next();
    const start = column(n, signed, Float64Array), length = column(n, next, Float64Array);
    let end = 0;
    for (let i = 0; i < n; ++i) { start[i] += end; end = start[i] + length[i]; }
    return {name, n, start, length, cls: column(n, next, Uint32Array),
            lag: column(n, signed, Float64Array), slowed: column(n, next, Float64Array)};
  });
  const worked = [];
  for (let n = next(), end = 0; n > 0; --n) {
    const start = end + signed(), length = signed();
    worked.push({start, length, name: data.names[next()]});
    end = start + length;
  }
  const exposed = steps.map(() => {
    const list = [];
    for (let n = next(), end = 0; n > 0; --n) {
      const start = end + signed(), length = signed(), cause = next(), on = next();
      list.push({start, length, cause: cause ? data.causes[cause - 1] : "", on: cause ? data.names[on] : ""});
      end = start + length;
    }
    return list;
  });
  const points = next(), total = new Float64Array(points);
  const times = () => { let t = 0; return column(points, () => t += signed(), Float64Array); };
  const host = times(), device = times();
  const held = data.categories.map(() => null);
  for (let i = 0; i < points; ++i) {
    for (const h of held) if (h && i) h[i] = h[i - 1];
    for (let n = next(); n > 0; --n) {
      const c = next(), change = signed() * 512;
      held[c] ??= new Float64Array(points);
      held[c][i] += change;
    }
    let sum = 0;
    for (const h of held) if (h) sum += h[i];
    total[i] = sum;
  }
  let reserved = null;
  if (next()) {
    reserved = new Float64Array(points);
    for (let i = 0, r = 0; i < points; ++i) reserved[i] = r += signed() * 512;
  }
  return {cls, streams, worked, exposed, memory: {n: points, host, device, time: device, total, held, reserved}};
}

const GATHER = data.kinds.indexOf("all_gather"), MEMSET = data.kinds.indexOf("memset");
const colorOfKind = data.kinds.map((k) => ({gemm: "gemm", kernel: "kernel", all_gather: "gather", reduce_scatter: "scatter",
  all_reduce: "allreduce", broadcast: "broadcast", reduce: "broadcast"})[k] || "copy");
// "all_gather model.lm_head" with the name as it is.
const firstWords = (text) => text.replace(/^\S+/, words);
const isCollective = (kind) => kind >= GATHER && data.kinds[kind] && /gather|scatter|reduce|broadcast/.test(data.kinds[kind]);

function summary() {
  const c = report.cluster;
  byId("name").textContent = report.name;
  byId("what").textContent = `${report.model.name}, ${report.strategy} on ${grouped(c.world)} \u00d7 ${c.gpu} (${c.name}), ` +
    `${grouped(facts.tokens_per_step)} tokens a GPU and step`;
  const figure = (label, value, more, kind) => el("div", {}, el("dt", {}, label),
    el("dd", {class: "value " + (kind || "")}, value), el("dd", {class: "more"}, more || "\u00a0"));
  const tiles = [], last = report.steps[report.steps.length - 1];
  const peak = memoryFacts.peak_reserved_bytes ?? memoryFacts.peak_allocated_bytes;
  if (last) {
    const rate = report.tokens_per_s_per_gpu;
    tiles.push(
      figure("Step time", seconds(report.step_time_s), steps.length > 1 || report.steps.length > 1 ? `first step ${seconds(report.first_step_time_s)}` : ""),
      figure("Tokens a second and GPU", grouped(rate), `${grouped(rate * c.world)} in all`),
      figure("MFU", facts.peak_tflops > 0 && report.mfu > 0 ? percent(report.mfu) : "\u2013",
        facts.peak_tflops > 0 ? `of ${facts.peak_tflops} ${facts.compute_dtype} TFLOPS` + (facts.hardware_flops ? `; HFU ${percent(report.hfu)}` : "") : ""),
      figure("Exposed communication", percent(last.exposed_comm_s / last.step_time_s), `${seconds(last.exposed_comm_s)} of the step`),
      figure("Communication hidden", percent(last.overlap_fraction), `of ${seconds(last.comm_busy_s)}`),
      figure("Host-bound", percent(last.host_bound_fraction), "of the step waits for the host"));
  }
  tiles.push(
    figure("Peak memory", bytes(peak), `of ${bytes(memoryFacts.capacity_bytes)}, ` + (memoryFacts.peak_reserved_bytes === null ? "live tensors" : "reserved")),
    memoryFacts.oom
      ? figure("Headroom", bytes(memoryFacts.headroom_bytes), "out of memory", "bad")
      : figure("Headroom", bytes(memoryFacts.headroom_bytes), "fits", "good"));
  byId("figures").replaceChildren(...tiles);
  if (memoryFacts.oom) {
    byId("verdict").hidden = false;
    byId("verdict").textContent = `Out of memory: ${bytes(memoryFacts.oom_missing_bytes)} are missing; the largest part is ` +
      `${words(memoryFacts.oom_largest_category)}. ${memoryFacts.oom_message || ""}`;
  }
  shares(last);
  notes();
}

function shares(last) {
  if (!last) return;
  const rest = Math.max(0, last.step_time_s - last.compute_busy_s - last.exposed_comm_s);
  const parts = [["compute", last.compute_busy_s, "gemm"], ["exposed communication", last.exposed_comm_s, "exposed"],
                 ["neither: copies, or nothing runs", rest, "copy"]];
  byId("shares").replaceChildren(el("h3", {}, "Where the step goes"),
    el("div", {class: "strip"}, parts.map(([, s, c]) => el("span", {style: {width: 100 * s / last.step_time_s + "%", background: `var(--${c})`}}))),
    el("div", {class: "legend"}, parts.map(([name, s, c]) => swatch(c, `${name} ${seconds(s)}, ${percent(s / last.step_time_s)}`))));
}

function notes() {
  const by = new Map();
  for (const i of report.interference || []) by.set(i.by.split(" ")[0], (by.get(i.by.split(" ")[0]) || 0) + i.time_s);
  const parts = [...by].sort((a, b) => b[1] - a[1]);
  if (parts.length)
    byId("shares").append(el("p", {class: "small soft", style: {marginTop: "8px"}},
      `Links, memory and SMs shared with collectives add ${seconds(report.interference_s)} (${percent(report.interference_s / report.step_time_s)} of the step) to kernels: ` +
      parts.map(([kind, s]) => `${seconds(s)} by ${words(kind)}`).join(", ") + "."));
  for (const note of report.notes || [])
    byId("shares").append(el("p", {class: "small soft", style: {marginTop: "8px"}}, "Note: " + note));
  byId("priced").replaceChildren(...report.priced_with.flatMap((p) =>
    [el("dt", {}, p.what), el("dd", {}, String(p.value).trim(), p.assumed && el("span", {class: "tag"}, "assumed"))]));
  if (report.priced_with.length === 0) byId("priced").append(el("dd", {}, "flat costs"));
  const c = report.cluster;
  const rows = [["model", `${report.model.name}, ${grouped(report.model.params)} parameters`],
    ["strategy", report.strategy], ["cluster", `${c.name}, ${grouped(c.nodes)} \u00d7 ${c.gpus_per_node} ${c.gpu}`],
    ["ranks", grouped(c.world)], ["MFU counts", report.mfu_definition],
    ["memory", memoryFacts.peak_reserved_bytes === null ? "live tensors; what the allocator reserves is not played" : "the caching allocator, block by block"]];
  const links = report.link_utilisation;
  if (links) rows.push(["links in use", Object.entries(links).filter(([, x]) => x > 0).map(([k, x]) => `${{nvlink: "NVLink", nic: "NIC", pcie: "PCIe"}[k] || k} ${percent(x)}`).join(", ") || "none"]);
  byId("scenario").replaceChildren(...rows.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

// ---- the charts ----

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
  if (packed.worked.length) lanes.push({kind: "worked", name: "host's own work", n: packed.worked.length, list: packed.worked, height: 22});
  const marks = memoryFacts.marks, phases = [];
  for (let i = 1; i < marks.length; ++i) {
    const from = marks[i - 1].host_s * 1e9, name = marks[i].mark.split(".").pop().replace(/^after_/, "");
    if (marks[i].host_s * 1e9 > bounds[0]) phases.push({start: from, length: marks[i].host_s * 1e9 - from, name: words(name)});
  }
  if (phases.length) lanes.push({kind: "host", name: "host: what it issues", n: phases.length, list: phases, height: 18});
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
    if (startOf(lane, mid) + lengthOf(lane, mid) > t) hi = mid; else lo = mid + 1;
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
  const unit = step >= 1e8 ? [1e9, "s"] : step >= 1e5 ? [1e6, "ms"] : step >= 1e2 ? [1e3, "\u00b5s"] : [1, "ns"];
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
      const x0 = xOf(startOf(lane, i), width), x1 = xOf(startOf(lane, i) + lengthOf(lane, i), width);
      if (x1 - x0 >= 0.4) g.fillRect(x0, AXIS + PHASES, Math.max(1, x1 - x0), height - AXIS - PHASES);
    }
  }
}

const LOOKS = ["gemm", "attention", "kernel", "gather", "scatter", "allreduce", "broadcast", "copy", "host", "exposed"];
// Of each launch its colour, as a place in LOOKS.
function addLooks(lane) {
  if (lane.kind !== "stream") { lane.look = new Uint8Array(lane.n).fill(LOOKS.indexOf(lane.kind === "exposed" ? "exposed" : "host")); return; }
  const cls = packed.cls, of = Uint8Array.from(cls.kind, (kind, c) => LOOKS.indexOf(cls.flags[c] & 2 ? "attention" : colorOfKind[kind]));
  lane.look = Uint8Array.from(lane.cls, (c) => of[c]);
}
function spanText(lane, i) {
  if (lane.kind !== "stream") return lane.list[i].name;
  const cls = packed.cls, c = lane.cls[i], group = cls.group[c];
  return isCollective(cls.kind[c]) && group ? data.groups[group - 1] : data.names[cls.name[c]];
}
const isStrong = (lane, i) => highlight === 0 || lane.kind !== "stream" || packed.cls.group[lane.cls[i]] === highlight;

function hatch(g, x, y, w, h) {
  g.save();
  g.beginPath();
  g.rect(x, y, w, h);
  g.clip();
  g.strokeStyle = color("sheet");
  g.globalAlpha = 0.55;
  g.lineWidth = 1.4;
  g.beginPath();
  for (let k = Math.floor(x / 6) * 6 - h; k < x + w; k += 6) { g.moveTo(k, y + h); g.lineTo(k + h, y); }
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
    const text = lane.kind === "exposed" ? "none" : lane.kind === "host" && first >= lane.n ? "ahead: it had issued all of this before" : "nothing here";
    g.fillStyle = color("faint");
    g.fillText(text, 1, y + h / 2 + 0.5);
  }
  // What is narrower than a pixel is drawn as the colour that has most of the pixel.
  const scale = width / (view[1] - view[0]), parts = new Float64Array(2 * LOOKS.length);
  let pixel = -1, covered = 0;
  const flush = () => {
    if (covered === 0) return;
    let most = 0;
    for (let k = 1; k < parts.length; ++k) if (parts[k] > parts[most]) most = k;
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
      if (p !== pixel) { flush(); pixel = p; }
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
    const x0 = xOf(startOf(lane, at.i), width), x1 = xOf(startOf(lane, at.i) + lengthOf(lane, at.i), width);
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

const categoryColor = data.categories.map((c, i) => "m" + i);
// From the bottom: what stays, then what comes and goes.
const STACK = ["parameters", "buffers", "optimizer_state", "gradients", "unsharded_parameters", "all_gather_buffers",
  "unsharded_gradients", "reduce_scatter_buffers", "buckets", "activations", "recomputed_activations", "backward",
  "optimizer", "workspace", "temporary"];
const COLORS = {parameters: "m0", buffers: "m1", optimizer_state: "m2", gradients: "m3", unsharded_parameters: "m4",
  all_gather_buffers: "m6", unsharded_gradients: "m5", reduce_scatter_buffers: "m7", buckets: "m14", activations: "m8",
  recomputed_activations: "m9", backward: "m10", optimizer: "m11", workspace: "m12", temporary: "m13"};
let stack = [];
function makeStack() {
  stack = STACK.concat(data.categories.filter((c) => !STACK.includes(c)))
    .map((c) => data.categories.indexOf(c)).filter((c) => c >= 0 && packed.memory.held[c]);
}

// The point that holds at t: the last at or before it.
function pointAt(t) {
  const m = packed.memory;
  let lo = 0, hi = m.n;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (m.time[mid] > t) hi = mid; else lo = mid + 1;
  }
  return lo - 1;
}

// Of each pixel the point with the most bytes, so that a peak is never lost.
function memoryPixels(width) {
  const m = packed.memory, n = Math.ceil(width), at = new Int32Array(n).fill(-1);
  let i = pointAt(view[0]);
  for (let x = 0; x < n; ++x) {
    const end = tOf(x + 1, width);
    let best = i;
    while (i + 1 < m.n && m.time[i + 1] < end) { ++i; if (best < 0 || m.total[i] > m.total[best]) best = i; }
    at[x] = best;
  }
  return at;
}

const MEMORY_TOP = 18, MEMORY_HEIGHT = 250;
let memoryScale = 1;
function drawMemory() {
  const [g, width] = prepare(byId("memory"), MEMORY_HEIGHT);
  const m = packed.memory, pixels = memoryPixels(width), bottom = MEMORY_HEIGHT - 4;
  let most = 0, peakX = -1, peak = -1;
  pixels.forEach((i, x) => {
    if (i < 0) return;
    most = Math.max(most, m.reserved ? m.reserved[i] : 0, m.total[i]);
    if (peak < 0 || m.total[i] > m.total[peak]) { peak = i; peakX = x; }
  });
  const capacity = memoryFacts.capacity_bytes, shows = capacity < 1.7 * most;
  const top = Math.max(512, (shows ? Math.max(most, capacity) : most) * 1.06);
  memoryScale = top;
  const yOf = (n) => bottom - n / top * (bottom - MEMORY_TOP);
  // Drawn over each other, the highest first, so that no seam is between them.
  const sums = new Float64Array(pixels.length);
  const paths = [];
  for (const c of stack) {
    const held = m.held[c];
    let any = false;
    pixels.forEach((i, x) => { if (i >= 0 && held[i] > 0) { sums[x] += held[i]; any = true; } });
    if (any) paths.push([c, sums.slice()]);
  }
  for (const [c, edge] of paths.reverse()) {
    g.fillStyle = color(COLORS[data.categories[c]] || "m13");
    g.beginPath();
    g.moveTo(0, bottom);
    edge.forEach((n, x) => { g.lineTo(x, yOf(n)); g.lineTo(x + 1, yOf(n)); });
    g.lineTo(width, bottom);
    g.fill();
  }
  if (m.reserved) {
    g.strokeStyle = color("reserved");
    g.lineWidth = 1.5;
    g.beginPath();
    pixels.forEach((i, x) => { if (i >= 0) { g.lineTo(x, yOf(m.reserved[i])); g.lineTo(x + 1, yOf(m.reserved[i])); } });
    g.stroke();
  }
  const gib = 1024 ** 3, mib = 1024 ** 2, unit = top > 2 * gib ? [gib, "GiB"] : top > 2 * mib ? [mib, "MiB"] : [1024, "KiB"];
  g.font = font(11);
  g.textBaseline = "middle";
  const label = (text, x, y, ink) => {
    const w = g.measureText(text).width;
    g.globalAlpha = 0.82;
    g.fillStyle = color("sheet");
    g.fillRect(x - 2, y - 7, w + 4, 14);
    g.globalAlpha = 1;
    g.fillStyle = ink;
    g.fillText(text, x, y + 0.5);
    return w;
  };
  for (const t of ticks(0, top / unit[0], 5).at) {
    const y = Math.round(yOf(t * unit[0])) + 0.5;
    g.globalAlpha = 0.5;
    g.fillStyle = color("line-strong");
    g.fillRect(0, y - 0.5, width, 1);
    g.globalAlpha = 1;
    if (t > 0) label(`${fixed(t, t % 1 ? 1 : 0)} ${unit[1]}`, 3, y - 9, color("soft"));
  }
  if (shows) {
    const y = Math.round(yOf(capacity)) + 0.5;
    g.strokeStyle = color("bad");
    g.setLineDash([5, 4]);
    g.lineWidth = 1.2;
    g.beginPath();
    g.moveTo(0, y);
    g.lineTo(width, y);
    g.stroke();
    g.setLineDash([]);
    const text = `capacity ${bytes(capacity)}`;
    label(text, width - g.measureText(text).width - 4, y - 9, color("bad"));
  }
  if (peak >= 0) {
    const y = yOf(m.total[peak]), text = `highest here ${bytes(m.total[peak])}`, w = g.measureText(text).width;
    g.fillStyle = color("ink");
    g.beginPath();
    g.arc(peakX + 0.5, y, 3, 0, 7);
    g.fill();
    label(text, Math.min(Math.max(60, peakX + 8), width - w - 4), Math.max(9, y - 10), color("ink"));
  }
  drawCursor(g, width, 0, bottom);
}

function legends() {
  const used = new Set();
  for (const lane of lanes) {
    for (const look of new Set(lane.look)) used.add(LOOKS[look]);
  }
  const names = [["gemm", "product"], ["attention", "attention"], ["kernel", "other kernel"], ["gather", "all-gather"],
    ["scatter", "reduce-scatter"], ["allreduce", "all-reduce"], ["broadcast", "broadcast, reduce"], ["copy", "copy, memset"],
    ["host", "host"], ["exposed", "exposed: a collective runs and no kernel does"]];
  byId("legend").replaceChildren(...names.filter(([c]) => used.has(c)).map(([c, t]) => swatch(c, t, c === "exposed" ? "hatch" : "")));
  const m = stack.slice().reverse().map((c) => swatch(COLORS[data.categories[c]] || "m13", words(data.categories[c])));
  if (packed.memory.reserved) m.unshift(swatch("reserved", "reserved by the allocator", "line"));
  byId("memory-legend").replaceChildren(...m);
}

// ---- moving about ----

function show(from, to) {
  const least = 20, most = bounds[1] - bounds[0];
  let length = Math.min(most, Math.max(least, to - from));
  const middle = (from + to) / 2;
  let a = middle - length / 2;
  a = Math.min(Math.max(a, bounds[0]), bounds[1] - length);
  view = [a, a + length];
  for (const b of byId("windows").children)
    b.setAttribute("aria-pressed", String(Math.abs(b.from - view[0]) < 1 && Math.abs(b.to - view[1]) < 1));
  redraw();
}
const zoom = (factor, t) => show(t - (t - view[0]) * factor, t + (view[1] - t) * factor);
const move = (part) => { const d = part * (view[1] - view[0]); show(view[0] + d, view[1] + d); };
const home = () => { const b = byId("windows").children[0]; show(b.from, b.to); };

function windowButtons() {
  const list = [], pad = (a, b) => [Math.max(bounds[0], a - (b - a) * 0.01), Math.min(bounds[1], b + (b - a) * 0.01)];
  if (steady) list.push([steps.length > 1 || data.first_step > 0 ? "Steady step" : "Step", ...pad(...steady)]);
  if (steps.length > 1) list.push([`Step ${data.first_step + 1}`, ...pad(...steps[0])]);
  if (!steady || bounds[1] - bounds[0] > 1.05 * (steady[1] - steady[0])) list.push(["All", ...bounds]);
  byId("windows").replaceChildren(...list.map(([name, from, to]) => {
    const b = el("button", {type: "button", onclick: () => show(from, to)}, name);
    b.from = from;
    b.to = to;
    return b;
  }));
}

function laneAt(y) {
  for (let k = 0; k < lanes.length; ++k) {
    const top = laneTop(k);
    if (y >= top && y < top + LABEL + lanes[k].height + GAP / 2) return lanes[k];
  }
  return null;
}
function hit(x, y, width) {
  const lane = laneAt(y);
  if (!lane || !lane.n) return null;
  const slack = 3 * (view[1] - view[0]) / width, t = tOf(x, width);
  let best = null, far = Infinity;
  for (let i = firstBehind(lane, t - slack); i < lane.n && startOf(lane, i) <= t + slack; ++i) {
    const a = startOf(lane, i), b = a + lengthOf(lane, i), d = t < a ? a - t : t > b ? t - b : 0;
    if (d < far || (d === far && lengthOf(lane, i) > lengthOf(lane, best))) { far = d; best = i; }
    if (d > 0 && a > t) break;
  }
  return best === null ? null : {lane, i: best};
}

function describe({lane, i}) {
  const start = startOf(lane, i), length = lengthOf(lane, i);
  const rows = [["start", duration(start - zero()).replace(/^-/, "\u2212")], ["duration", duration(length)]];
  if (lane.kind === "exposed") {
    const e = lane.list[i];
    if (e.on) rows.push(["waits on", firstWords(e.on)], ["cause", words(e.cause)]);
    return ["exposed communication", rows];
  }
  if (lane.kind !== "stream") return [lane.list[i].name, rows.concat([["on", lane.kind === "host" ? "the host, issuing" : "the host itself"]])];
  const cls = packed.cls, c = lane.cls[i], kind = cls.kind[c], s = length / 1e9;
  if (cls.group[c]) rows.push(["group", data.groups[cls.group[c] - 1]]);
  if (cls.comm[c]) rows.push(["communicator", data.communicators[cls.comm[c] - 1]]);
  if (cls.bytes[c]) rows.push(["bytes", bytes(cls.bytes[c]) + (s > 0 && kind !== MEMSET ? `, ${si(cls.bytes[c] / s, "B/s")}` : "")]);
  if (cls.flops[c]) rows.push(["FLOPs", si(cls.flops[c], "FLOP") + (s > 0 ? `, ${si(cls.flops[c] / s, "FLOPS")}` : "")]);
  if (cls.flags[c] & 1) rows.push(["", "recomputed by checkpointing"]);
  if (lane.slowed[i]) rows.push(["sharing adds", duration(lane.slowed[i])]);
  rows.push(["issued", `${duration(Math.max(0, lane.lag[i]))} before it starts`], ["stream", lane.name]);
  return [words(data.names[cls.name[c]]), rows];
}

function pick(at) {
  chosen = at;
  if (!at) { byId("picked").replaceChildren(el("span", {class: "soft"}, "A click on a launch keeps its figures here.")); return redraw(); }
  const [title, rows] = describe(at);
  byId("picked").replaceChildren(el("strong", {}, title), " \u2013 " + rows.map(([k, v]) => `${k} ${v}`.trim()).join(" \u00b7 "));
  redraw();
}

function pickNext(by) {
  const lane = chosen ? chosen.lane : lanes.find((l) => l.n);
  if (!lane) return;
  const i = Math.min(lane.n - 1, Math.max(0, chosen ? chosen.i + by : firstBehind(lane, view[0])));
  pick({lane, i});
  const a = startOf(lane, i), b = a + lengthOf(lane, i);
  if (a < view[0] || b > view[1]) { const half = (view[1] - view[0]) / 2; show((a + b) / 2 - half, (a + b) / 2 + half); }
}

function listen(canvas, overThe) {
  const touches = new Map();
  let dragged = 0;
  const place = (e) => { const r = canvas.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top, r.width]; };
  canvas.addEventListener("wheel", (e) => {
    const [x, , width] = place(e);
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) {
      e.preventDefault();
      move((e.deltaX || e.deltaY) / width);
    } else if (e.ctrlKey || e.metaKey || document.activeElement === canvas) {
      e.preventDefault();
      zoom(Math.exp(Math.max(-1, Math.min(1, e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.002)))), tOf(x, width));
    }
  }, {passive: false});
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    touches.set(e.pointerId, place(e)[0]);
    dragged = 0;
  });
  canvas.addEventListener("pointermove", (e) => {
    const [x, y, width] = place(e);
    if (touches.has(e.pointerId)) {
      const before = [...touches.values()];
      const last = touches.get(e.pointerId);
      touches.set(e.pointerId, x);
      const now = [...touches.values()];
      if (touches.size === 1) {
        dragged += Math.abs(x - last);
        if (dragged > 3) { hideTip(); const d = (last - x) / width * (view[1] - view[0]); show(view[0] + d, view[1] + d); }
      } else if (touches.size === 2) {
        dragged = 99;
        const apart = (p) => Math.max(8, Math.abs(p[0] - p[1]));
        zoom(apart(before) / apart(now), tOf((now[0] + now[1]) / 2, width));
      }
      return;
    }
    overThe(x, y, width, e);
  });
  const up = (e) => {
    const [x, y, width] = place(e);
    if (touches.delete(e.pointerId) && e.type === "pointerup" && dragged <= 3 && canvas.id === "lanes") pick(hit(x, y, width));
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { hideTip(); hover = null; cursor = null; redraw(); });
  canvas.addEventListener("keydown", (e) => {
    const keys = {ArrowLeft: () => move(-0.15), ArrowRight: () => move(0.15), "+": () => zoom(0.7, (view[0] + view[1]) / 2),
      "=": () => zoom(0.7, (view[0] + view[1]) / 2), "-": () => zoom(1 / 0.7, (view[0] + view[1]) / 2), 0: home, Home: home,
      "[": () => pickNext(-1), "]": () => pickNext(1), Escape: () => pick(null)};
    if (!(e.key in keys) || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  });
}

function overLanes(x, y, width, e) {
  const at = hit(x, y, width);
  hover = at;
  cursor = tOf(x, width);
  redraw();
  byId("lanes").style.cursor = at ? "pointer" : "crosshair";
  if (!at) return hideTip();
  const [title, rows] = describe(at);
  showTip(e.clientX, e.clientY, title, rows);
}

function overMemory(x, y, width, e) {
  cursor = tOf(x, width);
  redraw();
  const m = packed.memory, i = memoryPixels(width)[Math.min(Math.ceil(width) - 1, Math.max(0, Math.floor(x)))];
  if (i < 0) return hideTip();
  const rows = stack.map((c) => [words(data.categories[c]), m.held[c][i]]).filter(([, n]) => n > 0).reverse().map(([k, n]) => [k, bytes(n)]);
  if (m.reserved) rows.unshift(["reserved", bytes(m.reserved[i])]);
  showTip(e.clientX, e.clientY, `${bytes(m.total[i])} live at ${duration(m.time[i] - zero()).replace(/^-/, "\u2212")}`, rows, true);
}

// ---- tables ----

function exposedTable() {
  const list = steady ? packed.exposed[packed.exposed.length - 1] : [];
  byId("exposed-section").hidden = list.length === 0;
  if (!list.length) return;
  const all = list.reduce((sum, e) => sum + e.length, 0);
  byId("exposed-lead").textContent = `${grouped(list.length)} stretches, ${duration(all)}: what the compute stream was waiting for while a collective ran and no kernel did.`;
  table(byId("exposed"), [
    {head: "From", num: true, value: (e) => e.start, text: (e) => duration(e.start - zero())},
    {head: "For", num: true, value: (e) => e.length, text: (e) => duration(e.length)},
    {head: "Waits on", class: "name", value: (e) => e.on, text: (e) => firstWords(e.on)},
    {head: "Cause", value: (e) => e.cause, text: (e) => words(e.cause)},
    {head: "", node: (e) => el("button", {type: "button", class: "link", onclick: () => {
      show(e.start - 1.5 * e.length, e.start + 2.5 * e.length);
      byId("h-timeline").scrollIntoView();
      byId("lanes").focus({preventScroll: true});
    }}, "show")}], list, {by: 1, most: () => 500});
}

function groupTable() {
  const by = memoryFacts.by_group, times = data.group_times;
  const rows = report.groups.map((g, i) => ({...g, ...(times[i] || {}), i, label: data.groups[i], peak: by[i] ? by[i].bytes : 0}));
  const rest = times[report.groups.length];
  if (rest || by.length > rows.length)
    rows.push({i: -1, label: "(no group)", ...rest, peak: by.length > rows.length - 0 ? by[by.length - 1].bytes : 0});
  const some = (f) => rows.some((r) => f(r) > 0);
  const time = (head, f, title) => ({head, title, num: true, value: (r) => f(r) || 0, text: (r) => f(r) > 0 ? seconds(f(r)) : "\u2013"});
  const size = (head, f, title) => ({head, title, num: true, value: (r) => f(r) || 0, text: (r) => f(r) > 0 ? bytes(f(r)) : "\u2013"});
  const columns = [
    {head: "Group", class: "name", value: (r) => r.i < 0 ? 1e9 : r.i, text: (r) => r.label, node: (r) => r.i < 0 ? r.label :
      el("button", {type: "button", class: "link", onclick: () => { byId("highlight").value = r.i + 1; setHighlight(r.i + 1); byId("h-timeline").scrollIntoView(); }}, r.label)},
    {head: "Parameters", num: true, value: (r) => r.numel || 0, text: (r) => r.numel ? grouped(r.numel) : "\u2013"},
    size("Shard", (r) => r.shard_bytes, "of a rank, in the storage type")];
  if (some((r) => r.all_gather_s)) columns.push(time("Unshard", (r) => r.all_gather_s, "all-gathers of a step"));
  if (rows.some((r) => r.i >= 0 && r.forward_s + r.backward_s > 0))
    columns.push(time("Forward", (r) => r.forward_s, "kernels"), time("Backward", (r) => r.backward_s, "kernels, recomputation included"));
  if (rows.some((r) => r.i >= 0 && r.optimizer_s > 0)) columns.push(time("Optimizer", (r) => r.optimizer_s));
  if (some((r) => r.reduce_s)) columns.push(time("Reduce", (r) => r.reduce_s, "reduce-scatter, all-reduce and so on, of a step"));
  if (some((r) => r.all_gather_s) || some((r) => r.reduce_s)) columns.push(time("Exposed", (r) => r.exposed_s));
  if (some((r) => r.gathered_bytes)) columns.push(size("Gathered", (r) => r.gathered_bytes, "whole tensors, all gathers of a step"));
  if (some((r) => r.reduced_bytes)) columns.push(size("Reduced", (r) => r.reduced_bytes, "whole tensors, all reductions of a step"));
  columns.push(size("At the peak", (r) => r.peak, "live bytes when memory is highest"),
    {head: "Reshard", value: (r) => r.reshard || "", text: (r) => r.reshard || "\u2013"});
  table(byId("groups"), columns, rows, {by: 0, down: false});
}

function memoryTables() {
  const m = memoryFacts, all = Math.max(1, Object.values(m.by_category).reduce((a, b) => a + b, 0));
  byId("peak-lead").textContent = failed ? `What was live when memory ran out, ${m.peak_phase}.` :
    `What is live at ${bytes(m.peak_allocated_bytes)}${m.peak_phase ? `, before the mark ${m.peak_phase}` : ""}.`;
  const rows = Object.entries(m.by_category).filter(([, n]) => n > 0);
  table(byId("by-category"), [
    {head: "Category", value: ([c]) => c, node: ([c]) => swatch(COLORS[c] || "m13", words(c))},
    {head: "Bytes", num: true, value: ([, n]) => n, text: ([, n]) => bytes(n)},
    {head: "Share", num: true, value: ([, n]) => n, text: ([, n]) => percent(n / all)}], rows, {by: 1});
  const marks = m.marks, blocks = marks.some((r) => r.reserved_bytes !== null);
  const columns = [{head: "Up to the mark", class: "name", text: (r) => r.mark},
    {head: blocks ? "Allocated peak" : "Peak", num: true, value: (r) => r.peak_allocated_bytes, text: (r) => bytes(r.peak_allocated_bytes)}];
  if (blocks) columns.push({head: "Reserved peak", num: true, value: (r) => r.peak_reserved_bytes ?? 0, text: (r) => r.peak_reserved_bytes === null ? "\u2013" : bytes(r.peak_reserved_bytes)});
  columns.push({head: "Live then", num: true, value: (r) => r.allocated_bytes, text: (r) => bytes(r.allocated_bytes)});
  table(byId("by-phase"), columns, marks);
}

function collectiveTable() {
  const merged = new Map();
  for (const c of report.collectives) {
    const key = c.kind + "\n" + c.communicator;
    const row = merged.get(key) || {kind: c.kind, communicator: c.communicator, count: 0, bytes: 0, time: 0, exposed: 0, most: 0, nccl: ""};
    row.count += c.count;
    row.bytes += c.bytes_total;
    row.time += c.time_s;
    row.exposed += c.exposed_s;
    const one = c.bytes_total / Math.max(1, c.count);
    if (one >= row.most) { row.most = one; row.nccl = c.algorithm ? c.algorithm + (c.protocol ? `/${c.protocol}, ${c.ctas} blocks` : "") : ""; }
    merged.set(key, row);
  }
  const rows = [...merged.values()];
  if (!rows.length) return byId("collectives").replaceChildren(el("p", {class: "pad soft"}, "None: nothing is communicated."));
  const columns = [{head: "Kind", value: (r) => r.kind, text: (r) => words(r.kind)}, {head: "Communicator", class: "name", value: (r) => r.communicator || "", text: (r) => r.communicator || "\u2013"},
    {head: "Count", num: true, value: (r) => r.count, text: (r) => grouped(r.count)}, {head: "Bytes", num: true, value: (r) => r.bytes, text: (r) => bytes(r.bytes)},
    {head: "Time", num: true, value: (r) => r.time, text: (r) => seconds(r.time)}, {head: "Exposed", num: true, value: (r) => r.exposed, text: (r) => seconds(r.exposed)}];
  if (rows.some((r) => r.nccl)) columns.push({head: "NCCL, the largest", text: (r) => r.nccl || "\u2013"});
  table(byId("collectives"), columns, rows);
}

function setClock(clock) {
  packed.memory.time = packed.memory[clock];
  for (const c of ["device", "host"]) byId("clock-" + c).setAttribute("aria-pressed", String(c === clock));
  redraw();
}
function setHighlight(group) { highlight = Number(group); redraw(); }

start(async () => {
  summary();
  memoryTables();
  collectiveTable();
  packed = await read_packed();
  let lo = Infinity, hi = -Infinity;
  for (const s of packed.streams) if (s.n) { lo = Math.min(lo, s.start[0]); hi = Math.max(hi, s.start[s.n - 1] + s.length[s.n - 1]); }
  for (const [a, b] of steps) { lo = Math.min(lo, a); hi = Math.max(hi, b); }
  if (data.first_step === 0) lo = Math.min(lo, 0);
  if (!(lo < hi)) { lo = Number.isFinite(lo) ? lo : 0; hi = lo + 1000; }
  bounds = [lo, hi];
  makeLanes();
  makeStack();
  windowButtons();
  home();
  legends();
  byId("timeline-lead").textContent = (steady ? "What each stream runs, from the start of the steady step." : "What each stream ran.") +
    " Memory is drawn where the compute stream is in the program, or on request when the host asks for it, which may be steps ahead.";
  for (const clock of ["device", "host"]) byId("clock-" + clock).addEventListener("click", () => setClock(clock));
  setClock("device");
  pick(null);
  const out = data.left_out, said = [];
  if (out.launches > 0) said.push(`the ${grouped(out.launches)} launches of the first ${out.steps === 1 ? "step" : out.steps + " steps"} and what is before ${out.steps === 1 ? "it" : "them"}`);
  if (out.short > 0) said.push(`the ${grouped(out.short)} shortest launches, none longer than ${duration(out.longest_short_ns)}`);
  if (out.memory_points > 0) said.push(`${grouped(out.memory_points)} points of memory between higher neighbours`);
  if (said.length) { byId("left-out").hidden = false; byId("left-out").textContent = "Left out, for this page to stay small: " + said.join("; ") + "."; }
  byId("highlight").replaceChildren(el("option", {value: 0}, "all"), ...data.groups.map((g, i) => el("option", {value: i + 1}, g)));
  byId("highlight").addEventListener("change", (e) => setHighlight(e.target.value));
  byId("in").addEventListener("click", () => zoom(0.6, (view[0] + view[1]) / 2));
  byId("out").addEventListener("click", () => zoom(1 / 0.6, (view[0] + view[1]) / 2));
  byId("lanes").setAttribute("aria-label", `Timeline: ${lanes.map((l) => l.name).join(", ")}`);
  byId("memory").setAttribute("aria-label", `Memory over time by category, at most ${bytes(memoryFacts.peak_allocated_bytes)} live`);
  exposedTable();
  groupTable();
  listen(byId("lanes"), overLanes);
  listen(byId("memory"), overMemory);
  drawn.push(drawLanes, drawMemory);
  drawAll();
});
