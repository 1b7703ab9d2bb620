// What all pages use: elements, figures as text, tables, the tooltip, the theme.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

// el("td", {class: "num"}, "12", child): text is text, never markup.
function el(name, attributes, ...children) {
  const e = document.createElement(name);
  for (const [k, v] of Object.entries(attributes || {})) {
    if (v === false || v === null || v === undefined) continue;
    if (k.startsWith("on"))
      e.addEventListener(k.slice(2), v);
    else if (k === "style")
      Object.assign(e.style, v);
    else
      e.setAttribute(k, v === true ? "" : v);
  }
  for (const c of children.flat())
    if (c !== null && c !== undefined && c !== false) e.append(c);
  return e;
}

const grouped = (n) => Math.round(n).toLocaleString("en-US");
const fixed = (n, digits) =>
    n.toLocaleString("en-US", {minimumFractionDigits: digits, maximumFractionDigits: digits});
const percent = (x, digits = 1) => fixed(100 * x, digits) + " %";
function duration(ns) {
  const a = Math.abs(ns);
  if (a >= 1e9) return fixed(ns / 1e9, 3) + " s";
  if (a >= 1e6) return fixed(ns / 1e6, 3) + " ms";
  if (a >= 1e3) return fixed(ns / 1e3, 1) + " \u00b5s";
  return fixed(ns, 0) + " ns";
}
const seconds = (s) => duration(s * 1e9);
function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let u = 0, x = Math.abs(n);
  while (x >= 1024 && u < 5) {
    x /= 1024;
    ++u;
  }
  return (n < 0 ? "\u2212" : "") + (u === 0 ? fixed(x, 0) : fixed(x, 2)) + " " + units[u];
}
function si(n, unit) {
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  for (const [size, letter] of steps)
    if (n >= size) return fixed(n / size, 2) + " " + letter + unit;
  return fixed(n, 0) + " " + unit;
}
const words = (name) => name.replaceAll("_", " ");

let palette = {};
function color(name) {
  if (!(name in palette))
    palette[name] = getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  return palette[name];
}

// Redrawn when the theme or the width changes.
const drawn = [];
let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    drawn.forEach((f) => f());
  });
}
function drawAll() { drawn.forEach((f) => f()); }
addEventListener("resize", redraw);
// The system's wish, until the button says otherwise.
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = null;
const isDark = () => document.documentElement.dataset.theme === "dark";
function applyTheme() {
  document.documentElement.dataset.theme = chosenTheme ?? (prefersDark.matches ? "dark" : "light");
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  palette = {};
  redraw();
}
prefersDark.addEventListener("change", applyTheme);
byId("theme").addEventListener("click", () => {
  chosenTheme = isDark() ? "light" : "dark";
  applyTheme();
});
applyTheme();

// A canvas at the screen's resolution, its context scaled to CSS pixels.
function prepare(canvas, height) {
  const ratio = devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.style.height !== height + "px") canvas.style.height = height + "px";
  if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
  if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
  const g = canvas.getContext("2d");
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  return [g, width];
}
const face = getComputedStyle(document.body).fontFamily;
const font = (size, weight = 400) => `${weight} ${size}px ${face}`;

// About `count` round steps from lo to hi: 1, 2 or 5 times a power of ten.
function ticks(lo, hi, count) {
  const raw = (hi - lo) / Math.max(1, count);
  if (!(raw > 0)) return {step: 1, at: []};
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * 0.999);
  const at = [];
  for (let i = Math.ceil(lo / step); i * step <= hi + step * 1e-9 && at.length < 1000; ++i)
    at.push(i * step);
  return {step, at};
}

const tip = el("div", {class: "tip", role: "status", hidden: true});
document.body.append(tip);
// rows: [what, value]; `numbers`: values stand under each other.
function showTip(x, y, title, rows, numbers) {
  tip.replaceChildren(
      el("strong", {}, title),
      el("table", {},
         el("tbody", {},
            rows.map(
                ([k, v]) =>
                    el("tr", {}, el("td", {}, k), el("td", {class: numbers && "num"}, v))))));
  tip.hidden = false;
  const w = tip.offsetWidth, h = tip.offsetHeight;
  let left = x + 14, top = y + 16;
  if (left + w > innerWidth - 8) left = Math.max(8, x - w - 14);
  if (top + h > innerHeight - 8) top = Math.max(8, y - h - 12);
  tip.style.left = Math.min(left, Math.max(8, innerWidth - w - 8)) + "px";
  tip.style.top = top + "px";
}
function hideTip() { tip.hidden = true; }

// columns: {head, num, value(row), text(row), node(row), class}; a click on a head sorts.
function table(box, columns, rows, options = {}) {
  let by = options.by ?? -1, down = options.down ?? true;
  const body = el("tbody"), heads = el("tr");
  const t = el(
      "table", {class: "data"}, options.caption && el("caption", {hidden: true}, options.caption),
      el("thead", {}, heads), body);
  function fill() {
    heads.replaceChildren(...columns.map(
        (c, i) =>
            el("th", {
              scope: "col",
              class: c.num && "num",
              "aria-sort": i === by && (down ? "descending" : "ascending"),
              title: c.title
            },
               c.value ? el("button", {
                 type: "button",
                 onclick: () => {
                   down = i === by ? !down : !!c.num;
                   by = i;
                   fill();
                 }
               },
                            c.head) :
                         c.head)));
    const list = rows.slice();
    if (by >= 0 && columns[by].value) {
      const key = columns[by].value;
      list.sort((a, b) => {
        const x = key(a), y = key(b);
        if (x === null || y === null) return (x === null) - (y === null);
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      });
    }
    const most = options.most ? options.most() : list.length;
    body.replaceChildren(...list.slice(0, most).map((row) => {
      const tr =
          el("tr", options.row ? options.row(row) : {},
             columns.map(
                 (c) =>
                     el("td", {
                       class: [c.num ? "num" : "", c.class || ""].join(" ").trim() || null,
                       title: c.class === "name" && c.text ? c.text(row) : null
                     },
                        c.node ? c.node(row) : c.text(row))));
      return tr;
    }));
  }
  fill();
  box.replaceChildren(t);
  return {
    fill,
    set(more) {
      rows = more;
      fill();
    }
  };
}

const swatch = (name, text, kind) => el(
    "span", {}, el("i", {
      class: "swatch " + (kind || ""),
      style: kind === "line" ? {borderColor: `var(--${name})`} : {backgroundColor: `var(--${name})`}
    }),
    text);

// Says that the page stands, or why it does not.
function start(body) {
  body().then(
      () => {
        document.documentElement.dataset.ready = "yes";
      },
      (error) => {
        document.documentElement.dataset.ready = "failed";
        byId("failed").hidden = false;
        byId("failed").textContent = "This page could not be drawn: " + error.message;
        console.error(error);
      });
}
