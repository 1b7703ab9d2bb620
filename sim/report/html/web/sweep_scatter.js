// The scatter of two figures.

const HUES =
    ["gemm", "scatter", "gather", "allreduce", "attention", "exposed", "broadcast", "copy"];
const RAMP = {
  light: [[41, 55, 110], [52, 104, 140], [68, 146, 140], [136, 180, 104], [214, 178, 60]],
  dark: [[92, 112, 190], [84, 150, 190], [92, 184, 170], [160, 204, 120], [236, 204, 96]]
};
function ramp(t) {
  const r = RAMP[isDark() ? "dark" : "light"],
        at = Math.min(r.length - 1.0001, Math.max(0, t * (r.length - 1))), i = Math.floor(at);
  return "rgb(" + r[i].map((c, k) => Math.round(c + (r[i + 1][k] - c) * (at - i))).join(",") + ")";
}
const placeColor = (axis, place) => data.axes[axis].labels.length <= HUES.length ?
    color(HUES[place]) :
    ramp(place / Math.max(1, data.axes[axis].labels.length - 1));
const pointColor = (p) =>
    state.by < 0 ? color("gemm") : placeColor(state.by, points.at[state.by][p]);

// ---- the scatter ----

const LEFT = 64, RIGHT = 14, TOP = 16, BOTTOM = 40;
let plot = null;

function scaleOf(figure, log, list, from, to) {
  let lo = Infinity, hi = -Infinity;
  for (const p of list) {
    const v = figure.of(points.row[p]);
    if (log && v <= 0) continue;
    lo = Math.min(lo, v);
    hi = Math.max(hi, v);
  }
  if (!(lo <= hi)) {
    lo = log ? 1 : 0;
    hi = log ? 10 : 1;
  }
  if (lo === hi) {
    lo -= Math.abs(lo) * 0.1 || 0.5;
    hi += Math.abs(hi) * 0.1 || 0.5;
  }
  if (log) {
    lo = Math.max(lo, Number.MIN_VALUE);
    const a = Math.log(lo), b = Math.log(hi), pad = (b - a) * 0.05;
    const place = (v) => from + (Math.log(v) - a + pad) / (b - a + 2 * pad) * (to - from);
    const at = [];
    const low = Math.exp(a - pad), high = Math.exp(b + pad);
    const [base, unit] = unitOf(figure, hi);
    for (let e = Math.floor(Math.log10(low / base)); e <= Math.ceil(Math.log10(high / base)); ++e)
      for (const m of [1, 2, 5]) {
        const v = m * 10 ** e * base;
        if (v >= low && v <= high) at.push(v);
      }
    return {place, at, text: (v) => tickText(v, base, unit), log};
  }
  const pad = (hi - lo) * 0.05;
  let a = lo - pad;
  if (lo >= 0 && a < 0) a = 0;
  const b = hi + pad, [base, unit] = unitOf(figure, Math.max(Math.abs(a), Math.abs(b)));
  const t = ticks(a / base, b / base, Math.abs(to - from) / (from < to ? 72 : 55));
  return {
    place: (v) => from + (v - a) / (b - a) * (to - from),
    at: t.at.map((v) => v * base),
    text: (v) => tickText(v, base, unit)
  };
}
function unitOf(figure, most) {
  if (figure.unit === "time")
    return most >= 1 ? [1, "s"] : most >= 1e-3 ? [1e-3, "ms"] : [1e-6, "\u00b5s"];
  if (figure.unit === "bytes") {
    const u = most >= 2 ** 30 ? 3 : most >= 2 ** 20 ? 2 : 1;
    return [1024 ** u, ["B", "KiB", "MiB", "GiB"][u]];
  }
  if (figure.unit === "part") return [0.01, "%"];
  return most >= 1e9 ? [1e9, "B"] : most >= 1e6 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
}
const tickText = (v, base, unit) =>
    (Math.round(v / base * 1e6) / 1e6).toLocaleString("en-US").replace(/^-/, "\u2212") +
    (unit === "%"                                ? " %" :
         unit && unit.length < 2 && unit !== "s" ? unit :
         unit                                    ? " " + unit :
                                                   "");

function drawScatter() {
  const narrow = innerWidth < 560, height = narrow ? 340 : 470;
  const [g, width] = prepare(byId("scatter"), height);
  const x = figureOf(state.x), y = figureOf(state.y);
  const list = shown.filter(
      (p) => hasBoth(p, x, y) && !(state.xLog && x.of(points.row[p]) <= 0) &&
          !(state.yLog && y.of(points.row[p]) <= 0));
  const sx = scaleOf(x, state.xLog, list, LEFT, width - RIGHT),
        sy = scaleOf(y, state.yLog, list, height - BOTTOM, TOP);
  g.font = font(11);
  g.textBaseline = "middle";
  g.fillStyle = color("line");
  for (const v of sx.at) g.fillRect(Math.round(sx.place(v)), TOP, 1, height - BOTTOM - TOP);
  for (const v of sy.at) g.fillRect(LEFT, Math.round(sy.place(v)), width - RIGHT - LEFT, 1);
  g.fillStyle = color("soft");
  g.textAlign = "center";
  let right = -Infinity;
  for (const v of sx.at) {
    const text = sx.text(v), w = g.measureText(text).width,
          at = Math.min(width - w / 2 - 1, sx.place(v));
    if (at - w / 2 < right + 8) continue;
    right = at + w / 2;
    g.fillText(text, at, height - BOTTOM + 12);
  }
  g.textAlign = "right";
  let lowest = Infinity;
  for (const v of sy.at) {
    if (sy.place(v) > lowest - 14) continue;
    lowest = sy.place(v);
    g.fillText(sy.text(v), LEFT - 8, sy.place(v));
  }
  g.textAlign = "left";
  g.font = font(12, 550);
  g.fillStyle = color("ink");
  const arrow = (f) => f.better < 0 ? ", less is better" : f.better > 0 ? ", more is better" : "";
  g.textAlign = "right";
  g.fillText(x.name + arrow(x), width - RIGHT, height - 9);
  g.textAlign = "left";
  g.fillText(y.name + arrow(y), LEFT + 6, TOP - 6);
  plot = {sx, sy, list, x, y, width, height};
  const at = (p) => [sx.place(x.of(points.row[p])), sy.place(y.of(points.row[p]))];
  const radius = list.length > 3000 ? 2.4 : list.length > 400 ? 3 : 4;
  const dot = (p, r, strong) => {
    const [cx, cy] = at(p);
    g.beginPath();
    g.arc(cx, cy, r, 0, 7);
    const c = pointColor(p);
    if (fits(p) && ended(p)) {
      g.fillStyle = c;
      g.fill();
    } else {
      g.strokeStyle = c;
      g.lineWidth = 1.4;
      g.stroke();
    }
    if (strong) {
      g.strokeStyle = color("ink");
      g.lineWidth = 1.5;
      g.stroke();
    }
  };
  const onFront = new Set(front);
  g.globalAlpha = list.length > 3000 ? 0.5 : 0.75;
  for (const p of list)
    if (!onFront.has(p)) dot(p, radius, false);
  g.globalAlpha = 1;
  const line = front.filter((p) => plotHas(p, list));
  if (line.length) {
    g.strokeStyle = color("ink");
    g.lineWidth = 1.5;
    g.lineJoin = "round";
    g.beginPath();
    line.forEach((p, i) => {
      const [cx, cy] = at(p);
      if (i === 0)
        g.moveTo(cx, cy);
      else {
        const [, py] = at(line[i - 1]);
        g.lineTo(cx, py);
        g.lineTo(cx, cy);
      }
    });
    g.stroke();
    for (const p of line) dot(p, radius + 1.2, true);
  }
  for (const p of [state.open, state.hover]) {
    if (p === null || !plotHas(p, list)) continue;
    const [cx, cy] = at(p);
    dot(p, radius + 2, true);
    g.strokeStyle = color("accent");
    g.lineWidth = 2;
    g.beginPath();
    g.arc(cx, cy, radius + 5.5, 0, 7);
    g.stroke();
  }
  if (list.length === 0) {
    g.fillStyle = color("soft");
    g.font = font(13);
    g.fillText("no point is left: filters are above", LEFT + 16, height / 2);
  }
}
let listed = null, listedOf = null;
function plotHas(p, list) {
  if (listedOf !== list) {
    listedOf = list;
    listed = new Set(list);
  }
  return listed.has(p);
}

function nearest(mx, my) {
  let best = null, far = 14 * 14;
  for (const p of plot.list) {
    const dx = plot.sx.place(plot.x.of(points.row[p])) - mx,
          dy = plot.sy.place(plot.y.of(points.row[p])) - my;
    const d = dx * dx + dy * dy;
    if (d < far) {
      far = d;
      best = p;
    }
  }
  return best;
}

function tipRows(p) {
  const r = points.row[p], out = data.axes.map((a, i) => [a.name, label(p, i)]);
  for (const f of FIGURES) {
    const v = f.of(r);
    if (v !== null && f.key !== "params")
      out.push([f.name, f.text(v) + (f.key === "peak-memory" && !fits(p) ? ", does not fit" : "")]);
  }
  return out;
}

function scatterEvents() {
  const c = byId("scatter");
  const place = (e) => {
    const r = c.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top];
  };
  c.addEventListener("pointermove", (e) => {
    const p = nearest(...place(e));
    c.style.cursor = p === null ? "default" : "pointer";
    if (p !== state.hover) {
      state.hover = p;
      redraw();
    }
    if (p === null)
      hideTip();
    else
      showTip(e.clientX, e.clientY, "Point " + points.number[p], tipRows(p));
  });
  c.addEventListener("pointerleave", () => {
    state.hover = null;
    hideTip();
    redraw();
  });
  c.addEventListener("click", (e) => {
    const p = nearest(...place(e));
    if (p !== null) openPoint(p, true);
  });
  c.addEventListener("keydown", (e) => {
    const by = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[e.key];
    if (e.key === "Enter" && state.hover !== null) {
      e.preventDefault();
      return openPoint(state.hover, true);
    }
    if (!by || !plot.list.length) return;
    e.preventDefault();
    const order = plot.list.slice().sort(
        (a, b) => plot.x.of(points.row[a]) - plot.x.of(points.row[b]) || a - b);
    const now = order.indexOf(state.hover);
    const p = order[now < 0 ? 0 : Math.min(order.length - 1, Math.max(0, now + by))];
    state.hover = p;
    const r = c.getBoundingClientRect();
    showTip(
        r.left + plot.sx.place(plot.x.of(points.row[p])),
        r.top + plot.sy.place(plot.y.of(points.row[p])), "Point " + points.number[p], tipRows(p));
    redraw();
  });
  c.addEventListener("blur", () => {
    state.hover = null;
    hideTip();
    redraw();
  });
}
