// Memory over time by category.

// From the bottom: what stays, then what comes and goes.
const STACK = [
  "parameters", "buffers", "optimizer_state", "gradients", "unsharded_parameters",
  "all_gather_buffers", "unsharded_gradients", "reduce_scatter_buffers", "buckets", "activations",
  "recomputed_activations", "backward", "optimizer", "workspace", "temporary"
];
const COLORS = {
  parameters: "m0",
  buffers: "m1",
  optimizer_state: "m2",
  gradients: "m3",
  unsharded_parameters: "m4",
  all_gather_buffers: "m6",
  unsharded_gradients: "m5",
  reduce_scatter_buffers: "m7",
  buckets: "m14",
  activations: "m8",
  recomputed_activations: "m9",
  backward: "m10",
  optimizer: "m11",
  workspace: "m12",
  temporary: "m13"
};
let stack = [];
function makeStack() {
  stack = STACK.concat(data.categories.filter((c) => !STACK.includes(c)))
              .map((c) => data.categories.indexOf(c))
              .filter((c) => c >= 0 && packed.memory.held[c]);
}

// The point that holds at t: the last at or before it.
function pointAt(t) {
  const m = packed.memory;
  let lo = 0, hi = m.n;
  while (lo < hi) {
    const mid = (lo + hi) >> 1;
    if (m.time[mid] > t)
      hi = mid;
    else
      lo = mid + 1;
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
    while (i + 1 < m.n && m.time[i + 1] < end) {
      ++i;
      if (best < 0 || m.total[i] > m.total[best]) best = i;
    }
    at[x] = best;
  }
  return at;
}

const MEMORY_TOP = 18, MEMORY_HEIGHT = 250;
function drawMemory() {
  const [g, width] = prepare(byId("memory"), MEMORY_HEIGHT);
  const m = packed.memory, pixels = memoryPixels(width), bottom = MEMORY_HEIGHT - 4;
  let most = 0, peakX = -1, peak = -1;
  pixels.forEach((i, x) => {
    if (i < 0) return;
    most = Math.max(most, m.reserved ? m.reserved[i] : 0, m.total[i]);
    if (peak < 0 || m.total[i] > m.total[peak]) {
      peak = i;
      peakX = x;
    }
  });
  const capacity = memoryFacts.capacity_bytes, shows = capacity < 1.7 * most;
  const top = Math.max(512, (shows ? Math.max(most, capacity) : most) * 1.06);
  const yOf = (n) => bottom - n / top * (bottom - MEMORY_TOP);
  // Drawn over each other, the highest first, so that no seam is between them.
  const sums = new Float64Array(pixels.length);
  const paths = [];
  for (const c of stack) {
    const held = m.held[c];
    let any = false;
    pixels.forEach((i, x) => {
      if (i >= 0 && held[i] > 0) {
        sums[x] += held[i];
        any = true;
      }
    });
    if (any) paths.push([c, sums.slice()]);
  }
  for (const [c, edge] of paths.reverse()) {
    g.fillStyle = color(COLORS[data.categories[c]] || "m13");
    g.beginPath();
    g.moveTo(0, bottom);
    edge.forEach((n, x) => {
      g.lineTo(x, yOf(n));
      g.lineTo(x + 1, yOf(n));
    });
    g.lineTo(width, bottom);
    g.fill();
  }
  if (m.reserved) {
    g.strokeStyle = color("reserved");
    g.lineWidth = 1.5;
    g.beginPath();
    pixels.forEach((i, x) => {
      if (i >= 0) {
        g.lineTo(x, yOf(m.reserved[i]));
        g.lineTo(x + 1, yOf(m.reserved[i]));
      }
    });
    g.stroke();
  }
  const gib = 1024 ** 3, mib = 1024 ** 2,
        unit = top > 2 * gib ? [gib, "GiB"] :
      top > 2 * mib          ? [mib, "MiB"] :
                               [1024, "KiB"];
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
    const y = yOf(m.total[peak]), text = `highest here ${bytes(m.total[peak])}`,
          w = g.measureText(text).width;
    g.fillStyle = color("ink");
    g.beginPath();
    g.arc(peakX + 0.5, y, 3, 0, 7);
    g.fill();
    // Not across the line of what is reserved, but above it.
    const line = m.reserved ? yOf(m.reserved[peak]) : 0;
    const over = m.reserved && Math.abs(line - (y - 10)) < 10 ? line - 10 : y - 10;
    label(text, Math.min(Math.max(60, peakX + 8), width - w - 4), Math.max(9, over), color("ink"));
  }
  drawCursor(g, width, 0, bottom);
}
