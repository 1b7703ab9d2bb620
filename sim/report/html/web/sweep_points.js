// The page of a sweep. A row has the figures of one scenario, which several points may share.

const rows = data.rows, points = data.points, N = points.number.length;
const column = (key) => (r) => rows[key][r];
// better: -1 less is better, 1 more is, 0 neither.
const FIGURES = [
  {
    key: "step-time",
    name: "step time",
    better: -1,
    of: column("step_time_s"),
    text: seconds,
    unit: "time"
  },
  {
    key: "peak-memory",
    name: "peak memory",
    better: -1,
    of: column("peak_bytes"),
    text: bytes,
    unit: "bytes"
  },
  {key: "tokens-per-s", name: "tokens/s", better: 1, of: column("tokens_per_s"), text: grouped},
  {
    key: "tokens-per-s-per-gpu",
    name: "tokens/s/GPU",
    better: 1,
    of: column("tokens_per_s_per_gpu"),
    text: grouped
  },
  {key: "mfu", name: "MFU", better: 1, of: column("mfu"), text: percent, unit: "part"},
  {
    key: "exposed",
    name: "exposed, of the step",
    better: -1,
    unit: "part",
    text: percent,
    of: (r) => rows.step_time_s[r] > 0 ? rows.exposed_comm_s[r] / rows.step_time_s[r] : null
  },
  {
    key: "overlap",
    name: "communication hidden",
    better: 1,
    of: column("overlap_fraction"),
    text: percent,
    unit: "part"
  },
  {
    key: "headroom",
    name: "headroom",
    better: 1,
    of: column("headroom_bytes"),
    text: bytes,
    unit: "bytes"
  },
  {
    key: "cost",
    name: "cost of 10\u2079 tokens",
    better: -1,
    of: column("cost"),
    text: (n) => fixed(n, 2)
  },
  {
    key: "budget-hours",
    name: "hours of the token budget",
    better: -1,
    of: column("budget_hours"),
    text: (n) => fixed(n, 1)
  },
  {
    key: "budget-gpu-hours",
    name: "GPU-hours of it",
    better: -1,
    of: column("budget_gpu_hours"),
    text: grouped
  },
  {key: "budget-cost", name: "its cost", better: -1, of: column("budget_cost"), text: grouped},
  {key: "gpus", name: "GPUs", better: -1, of: column("gpus"), text: grouped},
  {key: "params", name: "parameters", better: 0, of: column("params"), text: grouped},
].filter((f) => rows.error.some((_, r) => f.of(r) !== null && f.of(r) !== undefined));
const figureOf = (key) => FIGURES.find((f) => f.key === key) || FIGURES[0];
const label = (p, a) => data.axes[a].labels[points.at[a][p]];
const ended = (p) => rows.step_time_s[points.row[p]] !== null;
const fits = (p) => rows.fits[points.row[p]] === 1;
// What the study requires of a point for answers to count it.
const counts = (p) => rows.excluded[points.row[p]] === 0;
const numbered = new Map(points.number.map((n, p) => [n, p]));

const state = {
  x: "step-time",
  y: "peak-memory",
  xLog: false,
  yLog: false,
  by: -1,
  objective: data.objective,
  frontOnly: false,
  most: 25,
  fit: data.fits || data.require.length ? "counts" : "all",
  off: data.axes.map(() => new Set()),
  open: null,
  hover: null
};
let shown = [], front = [];


function choose() {
  const x = figureOf(state.x), y = figureOf(state.y);
  shown = [];
  for (let p = 0; p < N; ++p) {
    const r = points.row[p];
    if (rows.error[r] >= 0) continue;
    if (state.fit === "counts" && !counts(p)) continue;
    if (state.fit === "not" && counts(p)) continue;
    if (state.off.some((set, a) => set.has(points.at[a][p]))) continue;
    shown.push(p);
  }
  front = frontOf(shown, x, y);
}
const hasBoth = (p, x, y) => Number.isFinite(x.of(points.row[p])) &&
    Number.isFinite(y.of(points.row[p])) && x.of(points.row[p]) !== null &&
    y.of(points.row[p]) !== null;
// By rising x, each better in y than all before it; a scenario once, of what ended.
function frontOf(list, x, y) {
  if (x === y) return [];
  const sx = x.better || -1, sy = y.better || -1, seen = new Set();
  const all = list.filter((p) => {
                    const r = points.row[p];
                    if (!ended(p) || !hasBoth(p, x, y) || seen.has(r)) return false;
                    seen.add(r);
                    return true;
                  })
                  .map((p) => [p, sx * x.of(points.row[p]), sy * y.of(points.row[p])]);
  all.sort((a, b) => b[1] - a[1] || b[2] - a[2] || a[0] - b[0]);
  const out = [];
  let best = -Infinity;
  for (const [p, , v] of all)
    if (v > best) {
      best = v;
      out.push(p);
    }
  return out;
}
