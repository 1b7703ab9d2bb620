// A point, its figures and its scenario.

// The settings of a point over the base, by the rule of config/overlay.h. Of each line of the text
// is kept whether the point set it.
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
    const out =
        pairs.map(([k, v]) => [k, put(v, list.filter(([path]) => path[depth] === k), depth + 1)]);
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
  const plain = (v) =>
      Array.isArray(v) ? v.every(plain) : typeof v === "string" && /^[\w.+-]+$/.test(v);
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

// Where a page may not write to the clipboard, the text is selected instead.
async function copyScenario(text, button) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId("scenario"));
  }
}

function openPoint(p, scroll) {
  state.open = p;
  const n = points.number[p], r = points.row[p], lines = scenarioOf(p);
  byId("point-section").hidden = false;
  byId("h-point").textContent = "Point " + n;
  const facts = el(
      "dl", {class: "facts"}, tipRows(p).flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  if (rows.error[r] >= 0)
    facts.append(el("dt", {}, "error"), el("dd", {class: "bad"}, data.errors[rows.error[r]]));
  const right = el("div");
  if (lines) {
    const text = lines.map(([l]) => l).join("\n") + "\n";
    const file = `${data.name.replace(/[^\w.-]+/g, "-")}-point-${n}.yaml`;
    right.append(
        el("div", {class: "bar"}, el("h3", {}, "Scenario"), el("span", {class: "gap"}),
           el("button", {type: "button", onclick: (e) => copyScenario(text, e.target)}, "Copy"),
           el("a",
              {download: file, href: "data:text/yaml;charset=utf-8," + encodeURIComponent(text)},
              "Download " + file)),
        el("pre", {id: "scenario", tabindex: 0, "aria-label": "Scenario of the point"},
           lines.map(([l, set]) => set ? el("mark", {}, l + "\n") : l + "\n")));
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
const pointLink = (p) =>
    el("a", {
      href: "#point=" + points.number[p],
      onclick: (e) => {
        e.preventDefault();
        openPoint(p, true);
      }
    },
       String(points.number[p]));
