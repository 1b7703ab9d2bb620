// The page of a sweep. A row has the figures of one scenario, which several points may share.
const rows = data.rows, points = data.points, N = points.number.length;
const column = (key) => (r) => rows[key][r];
// better: -1 less is better, 1 more is, 0 neither.
const FIGURES = [
  {key: "step-time", name: "step time", better: -1, of: column("step_time_s"), text: seconds, unit: "time"},
  {key: "peak-memory", name: "peak memory", better: -1, of: column("peak_bytes"), text: bytes, unit: "bytes"},
  {key: "tokens-per-s", name: "tokens/s", better: 1, of: column("tokens_per_s"), text: grouped},
  {key: "tokens-per-s-per-gpu", name: "tokens/s/GPU", better: 1, of: column("tokens_per_s_per_gpu"), text: grouped},
  {key: "mfu", name: "MFU", better: 1, of: column("mfu"), text: percent, unit: "part"},
  {key: "exposed", name: "exposed, of the step", better: -1, unit: "part", text: percent,
   of: (r) => rows.step_time_s[r] > 0 ? rows.exposed_comm_s[r] / rows.step_time_s[r] : null},
  {key: "overlap", name: "communication hidden", better: 1, of: column("overlap_fraction"), text: percent, unit: "part"},
  {key: "headroom", name: "headroom", better: 1, of: column("headroom_bytes"), text: bytes, unit: "bytes"},
  {key: "cost", name: "cost of 10\u2079 tokens", better: -1, of: column("cost"), text: (n) => fixed(n, 2)},
  {key: "gpus", name: "GPUs", better: -1, of: column("gpus"), text: grouped},
  {key: "params", name: "parameters", better: 0, of: column("params"), text: grouped},
].filter((f) => rows.error.some((_, r) => f.of(r) !== null && f.of(r) !== undefined));
const figureOf = (key) => FIGURES.find((f) => f.key === key) || FIGURES[0];
const label = (p, a) => data.axes[a].labels[points.at[a][p]];
const ended = (p) => rows.step_time_s[points.row[p]] !== null;
const fits = (p) => rows.fits[points.row[p]] === 1;
const numbered = new Map(points.number.map((n, p) => [n, p]));

const state = {x: "step-time", y: "peak-memory", xLog: false, yLog: false, by: -1, objective: data.objective,
  frontOnly: false, most: 25, fit: data.fits ? "fits" : "all", off: data.axes.map(() => new Set()), open: null, hover: null};
let shown = [], front = [];

// ---- which points are shown, and which of them no other betters ----

function choose() {
  const x = figureOf(state.x), y = figureOf(state.y);
  shown = [];
  for (let p = 0; p < N; ++p) {
    const r = points.row[p];
    if (rows.error[r] >= 0) continue;
    if (state.fit === "fits" && !fits(p)) continue;
    if (state.fit === "not" && fits(p)) continue;
    if (state.off.some((set, a) => set.has(points.at[a][p]))) continue;
    shown.push(p);
  }
  front = frontOf(shown, x, y);
}
const hasBoth = (p, x, y) => Number.isFinite(x.of(points.row[p])) && Number.isFinite(y.of(points.row[p])) && x.of(points.row[p]) !== null && y.of(points.row[p]) !== null;
// By rising x, each better in y than all before it; a scenario once, of what ended.
function frontOf(list, x, y) {
  if (x === y) return [];
  const sx = x.better || -1, sy = y.better || -1, seen = new Set();
  const all = list.filter((p) => {
    const r = points.row[p];
    if (!ended(p) || !hasBoth(p, x, y) || seen.has(r)) return false;
    seen.add(r);
    return true;
  }).map((p) => [p, sx * x.of(points.row[p]), sy * y.of(points.row[p])]);
  all.sort((a, b) => b[1] - a[1] || b[2] - a[2] || a[0] - b[0]);
  const out = [];
  let best = -Infinity;
  for (const [p, , v] of all) if (v > best) { best = v; out.push(p); }
  return out;
}

// ---- colours ----

const HUES = ["gemm", "scatter", "gather", "allreduce", "attention", "exposed", "broadcast", "copy"];
const RAMP = {light: [[41, 55, 110], [52, 104, 140], [68, 146, 140], [136, 180, 104], [214, 178, 60]],
              dark: [[92, 112, 190], [84, 150, 190], [92, 184, 170], [160, 204, 120], [236, 204, 96]]};
function ramp(t) {
  const r = RAMP[isDark() ? "dark" : "light"], at = Math.min(r.length - 1.0001, Math.max(0, t * (r.length - 1))), i = Math.floor(at);
  return "rgb(" + r[i].map((c, k) => Math.round(c + (r[i + 1][k] - c) * (at - i))).join(",") + ")";
}
const placeColor = (axis, place) => data.axes[axis].labels.length <= HUES.length
  ? color(HUES[place]) : ramp(place / Math.max(1, data.axes[axis].labels.length - 1));
const pointColor = (p) => state.by < 0 ? color("gemm") : placeColor(state.by, points.at[state.by][p]);

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
  if (!(lo <= hi)) { lo = log ? 1 : 0; hi = log ? 10 : 1; }
  if (lo === hi) { lo -= Math.abs(lo) * 0.1 || 0.5; hi += Math.abs(hi) * 0.1 || 0.5; }
  if (log) {
    lo = Math.max(lo, Number.MIN_VALUE);
    const a = Math.log(lo), b = Math.log(hi), pad = (b - a) * 0.05;
    const place = (v) => from + (Math.log(v) - a + pad) / (b - a + 2 * pad) * (to - from);
    const at = [];
    const low = Math.exp(a - pad), high = Math.exp(b + pad);
    const [base, unit] = unitOf(figure, hi);
    for (let e = Math.floor(Math.log10(low / base)); e <= Math.ceil(Math.log10(high / base)); ++e)
      for (const m of [1, 2, 5]) { const v = m * 10 ** e * base; if (v >= low && v <= high) at.push(v); }
    return {place, at, text: (v) => tickText(v, base, unit), log};
  }
  const pad = (hi - lo) * 0.05;
  let a = lo - pad;
  if (lo >= 0 && a < 0) a = 0;
  const b = hi + pad, [base, unit] = unitOf(figure, Math.max(Math.abs(a), Math.abs(b)));
  const t = ticks(a / base, b / base, Math.abs(to - from) / (from < to ? 72 : 55));
  return {place: (v) => from + (v - a) / (b - a) * (to - from), at: t.at.map((v) => v * base), text: (v) => tickText(v, base, unit)};
}
function unitOf(figure, most) {
  if (figure.unit === "time") return most >= 1 ? [1, "s"] : most >= 1e-3 ? [1e-3, "ms"] : [1e-6, "\u00b5s"];
  if (figure.unit === "bytes") { const u = most >= 2 ** 30 ? 3 : most >= 2 ** 20 ? 2 : 1; return [1024 ** u, ["B", "KiB", "MiB", "GiB"][u]]; }
  if (figure.unit === "part") return [0.01, "%"];
  return most >= 1e9 ? [1e9, "B"] : most >= 1e6 ? [1e6, "M"] : most >= 1e4 ? [1e3, "k"] : [1, ""];
}
const tickText = (v, base, unit) => (Math.round(v / base * 1e6) / 1e6).toLocaleString("en-US").replace(/^-/, "\u2212") + (unit === "%" ? " %" : unit && unit.length < 2 && unit !== "s" ? unit : unit ? " " + unit : "");

function drawScatter() {
  const narrow = innerWidth < 560, height = narrow ? 340 : 470;
  const [g, width] = prepare(byId("scatter"), height);
  const x = figureOf(state.x), y = figureOf(state.y);
  const list = shown.filter((p) => hasBoth(p, x, y) && !(state.xLog && x.of(points.row[p]) <= 0) && !(state.yLog && y.of(points.row[p]) <= 0));
  const sx = scaleOf(x, state.xLog, list, LEFT, width - RIGHT), sy = scaleOf(y, state.yLog, list, height - BOTTOM, TOP);
  g.font = font(11);
  g.textBaseline = "middle";
  g.fillStyle = color("line");
  for (const v of sx.at) g.fillRect(Math.round(sx.place(v)), TOP, 1, height - BOTTOM - TOP);
  for (const v of sy.at) g.fillRect(LEFT, Math.round(sy.place(v)), width - RIGHT - LEFT, 1);
  g.fillStyle = color("soft");
  g.textAlign = "center";
  let right = -Infinity;
  for (const v of sx.at) {
    const text = sx.text(v), w = g.measureText(text).width, at = Math.min(width - w / 2 - 1, sx.place(v));
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
    if (fits(p) && ended(p)) { g.fillStyle = c; g.fill(); }
    else { g.strokeStyle = c; g.lineWidth = 1.4; g.stroke(); }
    if (strong) { g.strokeStyle = color("ink"); g.lineWidth = 1.5; g.stroke(); }
  };
  const onFront = new Set(front);
  g.globalAlpha = list.length > 3000 ? 0.5 : 0.75;
  for (const p of list) if (!onFront.has(p)) dot(p, radius, false);
  g.globalAlpha = 1;
  const line = front.filter((p) => plotHas(p, list));
  if (line.length) {
    g.strokeStyle = color("ink");
    g.lineWidth = 1.5;
    g.lineJoin = "round";
    g.beginPath();
    line.forEach((p, i) => {
      const [cx, cy] = at(p);
      if (i === 0) g.moveTo(cx, cy);
      else { const [, py] = at(line[i - 1]); g.lineTo(cx, py); g.lineTo(cx, cy); }
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
  if (listedOf !== list) { listedOf = list; listed = new Set(list); }
  return listed.has(p);
}

function nearest(mx, my) {
  let best = null, far = 14 * 14;
  for (const p of plot.list) {
    const dx = plot.sx.place(plot.x.of(points.row[p])) - mx, dy = plot.sy.place(plot.y.of(points.row[p])) - my;
    const d = dx * dx + dy * dy;
    if (d < far) { far = d; best = p; }
  }
  return best;
}

function tipRows(p) {
  const r = points.row[p], out = data.axes.map((a, i) => [a.name, label(p, i)]);
  for (const f of FIGURES) {
    const v = f.of(r);
    if (v !== null && f.key !== "params") out.push([f.name, f.text(v) + (f.key === "peak-memory" && !fits(p) ? ", does not fit" : "")]);
  }
  return out;
}

function scatterEvents() {
  const c = byId("scatter");
  const place = (e) => { const r = c.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
  c.addEventListener("pointermove", (e) => {
    const p = nearest(...place(e));
    c.style.cursor = p === null ? "default" : "pointer";
    if (p !== state.hover) { state.hover = p; redraw(); }
    if (p === null) hideTip();
    else showTip(e.clientX, e.clientY, "Point " + points.number[p], tipRows(p));
  });
  c.addEventListener("pointerleave", () => { state.hover = null; hideTip(); redraw(); });
  c.addEventListener("click", (e) => { const p = nearest(...place(e)); if (p !== null) openPoint(p, true); });
  c.addEventListener("keydown", (e) => {
    const by = {ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1}[e.key];
    if (e.key === "Enter" && state.hover !== null) { e.preventDefault(); return openPoint(state.hover, true); }
    if (!by || !plot.list.length) return;
    e.preventDefault();
    const order = plot.list.slice().sort((a, b) => plot.x.of(points.row[a]) - plot.x.of(points.row[b]) || a - b);
    const now = order.indexOf(state.hover);
    const p = order[now < 0 ? 0 : Math.min(order.length - 1, Math.max(0, now + by))];
    state.hover = p;
    const r = c.getBoundingClientRect();
    showTip(r.left + plot.sx.place(plot.x.of(points.row[p])), r.top + plot.sy.place(plot.y.of(points.row[p])), "Point " + points.number[p], tipRows(p));
    redraw();
  });
  c.addEventListener("blur", () => { state.hover = null; hideTip(); redraw(); });
}

// ---- a point's scenario ----

// The settings of a point over the base, by the rule of config/overlay.h. Of each line of the text is kept
// whether the point set it.
function scenarioOf(p) {
  const parts = data.scenarios;
  if (!parts) return null;
  const settings = [];
  for (let a = 0; a < data.axes.length; ++a) {
    const place = parts.axes[a].places.find((x) => x.label === label(p, a));
    if (!place) return null;
    settings.push(...place.settings);
  }
  const isMap = (v) => v !== null && typeof v === "object" && "m" in v;
  function put(value, list, depth) {
    for (let i = list.length - 1; i >= 0; --i)
      if (list[i][0].length === depth) return {set: true, value: list[i][1]};
    if (list.length === 0) return {set: false, value};
    const pairs = isMap(value) ? value.m : [];
    const out = pairs.map(([k, v]) => [k, put(v, list.filter(([path]) => path[depth] === k), depth + 1)]);
    const known = new Set(pairs.map(([k]) => k));
    for (const [path] of list) {
      const k = path[depth];
      if (known.has(k)) continue;
      known.add(k);
      out.push([k, put(null, list.filter(([other]) => other[depth] === k), depth + 1)]);
    }
    return {set: false, pairs: out};
  }
  const lines = [];
  const key = (k) => /^[A-Za-z_][\w.-]*$/.test(k) ? k : JSON.stringify(k);
  const scalar = (v) => v === null ? "~" : typeof v === "string" ? v : JSON.stringify(v.q);
  const isScalar = (v) => v === null || typeof v === "string" || "q" in v;
  const plain = (v) => Array.isArray(v) ? v.every(plain) : typeof v === "string" && /^[\w.+-]+$/.test(v);
  const flow = (v) => Array.isArray(v) ? "[" + v.map(flow).join(", ") + "]" : v;
  // `head`: what stands in front on the first line.
  function emit(head, node, indent, set) {
    set = set || !!node.set;
    const pad = " ".repeat(indent);
    if (node.pairs || isMap(node.value)) {
      const pairs = node.pairs || node.value.m.map(([k, v]) => [k, {value: v}]);
      if (pairs.length === 0) return lines.push([pad + head + " {}", set]);
      if (head) lines.push([pad + head, set]);
      for (const [k, v] of pairs) emit(key(k) + ":", v, head ? indent + 2 : indent, set);
    } else if (Array.isArray(node.value)) {
      if (plain(node.value)) return lines.push([`${pad}${head} ${flow(node.value)}`, set]);
      lines.push([pad + head, set]);
      for (const v of node.value) emit("-", {value: v}, indent + 2, set);
    } else {
      lines.push([`${pad}${head} ${scalar(node.value)}`, set]);
    }
  }
  const calm = (s) => s.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, " ");
  lines.push([`# ${calm(data.name)}, point ${points.number[p]}`, false]);
  data.axes.forEach((a, i) => lines.push([`#   ${calm(a.name)}: ${calm(label(p, i))}`, false]));
  lines.push([`# Files that it names are looked for from where ${calm(parts.file)} is.`, false]);
  emit("", put(parts.base, settings, 0), 0, false);
  return lines;
}

function openPoint(p, scroll) {
  state.open = p;
  const n = points.number[p], r = points.row[p], lines = scenarioOf(p);
  byId("point-section").hidden = false;
  byId("h-point").textContent = "Point " + n;
  const facts = el("dl", {class: "facts"}, tipRows(p).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  if (rows.error[r] >= 0) facts.append(el("dt", {}, "error"), el("dd", {class: "bad"}, data.errors[rows.error[r]]));
  const right = el("div");
  if (lines) {
    const text = lines.map(([l]) => l).join("\n") + "\n";
    const file = `${data.name.replace(/[^\w.-]+/g, "-")}-point-${n}.yaml`;
    right.append(el("div", {class: "bar"}, el("h3", {}, "Scenario"), el("span", {class: "gap"}),
      el("button", {type: "button", onclick: (e) => {
        navigator.clipboard.writeText(text).then(() => { e.target.textContent = "Copied"; }, () => getSelection().selectAllChildren(byId("scenario")));
      }}, "Copy"),
      el("a", {download: file, href: "data:text/yaml;charset=utf-8," + encodeURIComponent(text)}, "Download " + file)),
      el("pre", {id: "scenario", tabindex: 0, "aria-label": "Scenario of the point"}, lines.map(([l, set]) => set ? el("mark", {}, l + "\n") : l + "\n")));
  } else {
    right.append(el("h3", {}, "Scenario"), el("p", {class: "soft"}, "This store was written before stores kept what scenarios are made from; the study and its number give it: point " + n + "."));
  }
  byId("point").replaceChildren(el("div", {}, el("h3", {}, "Figures"), facts), right);
  if (location.hash !== "#point=" + n) history.replaceState(null, "", "#point=" + n);
  if (scroll) byId("h-point").scrollIntoView({block: "start"});
  redraw();
}
function openHash(scroll) {
  const m = /^#point=(\d+)$/.exec(location.hash);
  if (m && numbered.has(Number(m[1]))) openPoint(numbered.get(Number(m[1])), scroll);
}
const pointLink = (p) => el("a", {href: "#point=" + points.number[p], onclick: (e) => { e.preventDefault(); openPoint(p, true); }}, String(points.number[p]));

// ---- filters, tables ----

function filters() {
  const chip = (text, pressed, click) => {
    const b = el("button", {type: "button", "aria-pressed": String(pressed()), title: text}, text);
    b.addEventListener("click", () => { click(); update(); });
    b.sync = () => b.setAttribute("aria-pressed", String(pressed()));
    chips.push(b);
    return b;
  };
  const chips = [];
  const sets = [el("fieldset", {}, el("legend", {}, "Memory"), el("div", {class: "chips"},
    [["fits", "fits"], ["all", "all"], ["not", "does not fit"]].map(([v, t]) => chip(t, () => state.fit === v, () => { state.fit = v; }))))];
  data.axes.forEach((axis, a) => {
    const off = state.off[a];
    // A first click on a value shows it alone; with all shown again, all are pressed.
    sets.push(el("fieldset", {}, el("legend", {}, axis.name), el("div", {class: "chips"},
      axis.labels.map((text, i) => chip(text, () => !off.has(i), () => {
        if (off.size === 0 && axis.labels.length > 1) axis.labels.forEach((_, k) => { if (k !== i) off.add(k); });
        else if (off.has(i)) off.delete(i);
        else { off.add(i); if (off.size === axis.labels.length) off.clear(); }
      })))));
  });
  byId("filters").replaceChildren(...sets);
  return () => chips.forEach((c) => c.sync());
}

function legend() {
  if (state.by < 0) return byId("legend").replaceChildren();
  const labels = data.axes[state.by].labels;
  const each = labels.length <= 14 ? labels.map((_, i) => i) : [0, 1, 2, 3, 4].map((k) => Math.round(k * (labels.length - 1) / 4));
  byId("legend").replaceChildren(el("span", {}, data.axes[state.by].name + ":"), ...each.map((i) =>
    el("span", {}, el("i", {class: "swatch", style: {backgroundColor: placeColor(state.by, i)}}), labels[i])));
}

let bestTable = null;
function best() {
  const f = figureOf(state.objective), s = f.better || -1, seen = new Set();
  const onFront = new Set(front);
  let list = (state.frontOnly ? front : shown).filter((p) => {
    const r = points.row[p];
    if (!ended(p) || f.of(r) === null || seen.has(r)) return false;
    seen.add(r);
    return true;
  });
  list = list.slice().sort((a, b) => s * (f.of(points.row[b]) - f.of(points.row[a])) || a - b);
  const columns = [{head: "Point", num: true, value: (p) => points.number[p], node: pointLink}];
  data.axes.forEach((axis, a) => columns.push({head: axis.name, class: "name", value: (p) => points.at[a][p], text: (p) => label(p, a)}));
  for (const g of FIGURES) {
    if (["params", "overlap", "headroom"].includes(g.key) && g !== f) continue;
    columns.push({head: g.name, num: true, value: (p) => g.of(points.row[p]),
      text: (p) => g.of(points.row[p]) === null ? "\u2013" : g.text(g.of(points.row[p])) + (g.key === "peak-memory" && !fits(p) ? " *" : "")});
  }
  columns.push({head: "Front", text: (p) => onFront.has(p) ? "yes" : ""});
  bestTable = table(byId("best"), columns, list, {most: () => state.most});
  byId("more").hidden = list.length <= state.most;
}

function axisEffects() {
  const f = figureOf(state.objective), s = f.better || -1;
  byId("axes-lead").textContent = `Of the points shown, by ${f.name}: the dot is the best at each value, the bar the median, the line the whole range.`;
  const effects = data.axes.map((axis, a) => {
    const values = axis.labels.map(() => []);
    for (const p of shown) {
      const v = f.of(points.row[p]);
      if (ended(p) && v !== null) values[points.at[a][p]].push(v);
    }
    values.forEach((v) => v.sort((x, y) => x - y));
    const bests = values.filter((v) => v.length).map((v) => s > 0 ? v[v.length - 1] : v[0]);
    const lo = Math.min(...bests), hi = Math.max(...bests);
    return {axis, values, spread: bests.length && lo > 0 ? hi / lo - 1 : 0};
  }).sort((x, y) => y.spread - x.spread);
  const all = effects.flatMap((e) => e.values.flatMap((v) => v.length ? [v[0], v[v.length - 1]] : []));
  const lo = all.reduce((x, y) => Math.min(x, y), Infinity), hi = all.reduce((x, y) => Math.max(x, y), -Infinity);
  const log = lo > 0 && hi / lo > 20;
  const at = (v) => (hi > lo ? log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo) : 0.5) * 96 + 2 + "%";
  byId("axes").replaceChildren(...effects.map(({axis, values, spread}) => el("div", {class: "sheet"},
    el("h3", {}, axis.name, el("span", {class: "soft small", style: {fontWeight: 400}}, `  best values ${percent(spread)} apart` + (log ? ", logarithmic" : ""))),
    el("div", {class: "places"}, values.flatMap((v, i) => {
      const name = el("span", {title: axis.labels[i]}, axis.labels[i]);
      if (!v.length) return [name, el("span"), el("span", {class: "soft"}, "none")];
      const top = s > 0 ? v[v.length - 1] : v[0], middle = v[Math.floor(v.length / 2)];
      return [name, el("span", {class: "range", title: `${grouped(v.length)} points; best ${f.text(top)}, median ${f.text(middle)}`},
        el("i", {style: {left: at(v[0]), width: `calc(${at(v[v.length - 1])} - ${at(v[0])})`}}),
        el("u", {style: {left: at(middle)}}), el("b", {style: {left: at(top)}})), el("span", {}, f.text(top))];
    })))));
}

function errorTable() {
  const by = data.errors.map((text) => ({text, points: []}));
  for (let p = 0; p < N; ++p) { const e = rows.error[points.row[p]]; if (e >= 0) by[e].points.push(p); }
  byId("errors-section").hidden = by.length === 0;
  if (by.length)
    table(byId("errors"), [{head: "Points", num: true, value: (e) => e.points.length, text: (e) => grouped(e.points.length)},
      {head: "Which", node: (e) => el("span", {}, e.points.slice(0, 6).flatMap((p, i) => [i ? ", " : "", pointLink(p)]), e.points.length > 6 ? ", \u2026" : "")},
      {head: "Why", class: "long", value: (e) => e.text, text: (e) => e.text}], by, {by: 0});
}

function summary() {
  byId("name").textContent = data.name;
  byId("what").textContent = data.question;
  let fitting = 0, large = 0, wrong = 0;
  for (let p = 0; p < N; ++p) {
    const r = points.row[p];
    if (rows.error[r] >= 0) ++wrong; else if (fits(p)) ++fitting; else ++large;
  }
  const tile = (name, value, more, kind) => el("div", {}, el("dt", {}, name), el("dd", {class: "value " + (kind || "")}, value), el("dd", {class: "more"}, more || "\u00a0"));
  const f = figureOf(data.objective), s = f.better || -1;
  let top = null;
  for (let p = 0; p < N; ++p) {
    const v = f.of(points.row[p]);
    if (ended(p) && v !== null && (fits(p) || !data.fits) && (top === null || s * (v - f.of(points.row[top])) > 0)) top = p;
  }
  byId("figures").replaceChildren(
    tile("Points", grouped(N + data.missing + data.left_out), `${grouped(rows.error.length)} scenarios` + (data.missing ? `, ${grouped(data.missing)} still to be played` : "")),
    tile("Fit in memory", grouped(fitting), large ? `${grouped(large)} do not` : "all that were played", "good"),
    tile("Could not be played", grouped(wrong), wrong ? "listed below" : "", wrong ? "bad" : ""),
    tile(`Best ${f.name}`, top === null ? "\u2013" : f.text(f.of(points.row[top])), top === null ? "" : el("span", {}, "point ", pointLink(top))));
  if (data.left_out) {
    byId("left-out").hidden = false;
    byId("left-out").textContent = `Left out, for this page to stay small: ${grouped(data.left_out)} points, none of them among the best ${grouped(N)} by ${f.name}.`;
  }
}

let syncChips = () => {};
function update() {
  choose();
  syncChips();
  legend();
  best();
  axisEffects();
  byId("count").textContent = `${grouped(shown.length)} of ${grouped(N)} points shown` + (front.length ? `, ${grouped(front.length)} of them on the front of ${figureOf(state.x).name} and ${figureOf(state.y).name}.` : ".");
  byId("scatter").setAttribute("aria-label", `Scatter of ${figureOf(state.y).name} against ${figureOf(state.x).name}, ${grouped(shown.length)} points, ${grouped(front.length)} on the front`);
  redraw();
}

start(async () => {
  // A sweep of which nothing has ended.
  if (FIGURES.length === 0) FIGURES.push({key: "step-time", name: "step time", better: -1, of: () => null, text: seconds});
  summary();
  const options = (id, list, value, change) => {
    byId(id).replaceChildren(...list.map(([v, t]) => el("option", {value: v}, t)));
    byId(id).value = value;
    byId(id).addEventListener("change", (e) => { change(e.target.value); update(); });
  };
  const check = (id, change) => byId(id).addEventListener("change", (e) => { change(e.target.checked); update(); });
  const named = FIGURES.map((f) => [f.key, f.name]);
  options("x", named, figureOf(state.x).key, (v) => { state.x = v; });
  options("y", named, figureOf(state.y).key, (v) => { state.y = v; });
  state.objective = figureOf(state.objective).key;
  options("objective", named.filter(([k]) => figureOf(k).better), state.objective, (v) => { state.objective = v; });
  const colored = data.axes.map((a, i) => [i, a.name]).filter(([i]) => data.axes[i].labels.length > 1);
  state.by = colored.length ? colored[0][0] : -1;
  options("by", [[-1, "one colour"], ...colored], state.by, (v) => { state.by = Number(v); });
  check("x-log", (v) => { state.xLog = v; });
  check("y-log", (v) => { state.yLog = v; });
  check("front-only", (v) => { state.frontOnly = v; });
  byId("more").addEventListener("click", () => { state.most *= 4; bestTable.fill(); best(); });
  syncChips = filters();
  errorTable();
  scatterEvents();
  drawn.push(drawScatter);
  update();
  openHash(true);
  addEventListener("hashchange", () => openHash(true));
  drawAll();
});
