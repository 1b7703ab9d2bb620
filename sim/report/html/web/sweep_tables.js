// Filters, tables, what each axis does.

function filters() {
  const chip = (text, pressed, click) => {
    const b = el("button", {type: "button", "aria-pressed": String(pressed()), title: text}, text);
    b.addEventListener("click", () => {
      click();
      update();
    });
    b.sync = () => b.setAttribute("aria-pressed", String(pressed()));
    chips.push(b);
    return b;
  };
  const chips = [];
  const bound = data.require.length > 0;
  const sets = [el(
      "fieldset", {}, el("legend", {}, bound ? "Required" : "Memory"), el("div", {class: "chips"}, [
        ["counts", bound ? "as required" : "fits"], ["all", "all"],
        ["not", bound ? "not so" : "does not fit"]
      ].map(([v, t]) => chip(t, () => state.fit === v, () => {
              state.fit = v;
            }))))];
  data.axes.forEach((axis, a) => {
    const off = state.off[a];
    // A first click on a value shows it alone; with all shown again, all are pressed.
    sets.push(
        el("fieldset", {}, el("legend", {}, axis.name),
           el("div", {class: "chips"},
              axis.labels.map((text, i) => chip(text, () => !off.has(i), () => {
                                if (off.size === 0 && axis.labels.length > 1)
                                  axis.labels.forEach((_, k) => {
                                    if (k !== i) off.add(k);
                                  });
                                else if (off.has(i))
                                  off.delete(i);
                                else {
                                  off.add(i);
                                  if (off.size === axis.labels.length) off.clear();
                                }
                              })))));
  });
  byId("filters").replaceChildren(...sets);
  return () => chips.forEach((c) => c.sync());
}

function legend() {
  if (state.by < 0) return byId("legend").replaceChildren();
  const labels = data.axes[state.by].labels;
  const each = labels.length <= 14 ?
      labels.map((_, i) => i) :
      [0, 1, 2, 3, 4].map((k) => Math.round(k * (labels.length - 1) / 4));
  byId("legend").replaceChildren(
      el("span", {}, data.axes[state.by].name + ":"),
      ...each.map(
          (i) =>
              el("span", {},
                 el("i", {class: "swatch", style: {backgroundColor: placeColor(state.by, i)}}),
                 labels[i])));
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
  data.axes.forEach((axis, a) => columns.push({
    head: axis.name,
    class: "name",
    value: (p) => points.at[a][p],
    text: (p) => label(p, a)
  }));
  for (const g of FIGURES) {
    if (["params", "overlap", "headroom"].includes(g.key) && g !== f) continue;
    columns.push({
      head: g.name,
      num: true,
      value: (p) => g.of(points.row[p]),
      text: (p) => g.of(points.row[p]) === null ?
          "\u2013" :
          g.text(g.of(points.row[p])) + (g.key === "peak-memory" && !fits(p) ? " *" : "")
    });
  }
  columns.push({head: "Front", text: (p) => onFront.has(p) ? "yes" : ""});
  bestTable = table(byId("best"), columns, list, {most: () => state.most});
  byId("more").hidden = list.length <= state.most;
}

function axisEffects() {
  const f = figureOf(state.objective), s = f.better || -1;
  byId("axes-lead").textContent = `Of the points shown, by ${
      f.name}: the dot is the best at each value, the bar the median, the line the whole range.`;
  const effects =
      data.axes
          .map((axis, a) => {
            const values = axis.labels.map(() => []);
            for (const p of shown) {
              const v = f.of(points.row[p]);
              if (ended(p) && v !== null) values[points.at[a][p]].push(v);
            }
            values.forEach((v) => v.sort((x, y) => x - y));
            const bests = values.filter((v) => v.length).map((v) => s > 0 ? v[v.length - 1] : v[0]);
            const lo = Math.min(...bests), hi = Math.max(...bests);
            return {axis, values, spread: bests.length && lo > 0 ? hi / lo - 1 : 0};
          })
          .sort((x, y) => y.spread - x.spread);
  const all =
      effects.flatMap((e) => e.values.flatMap((v) => v.length ? [v[0], v[v.length - 1]] : []));
  const lo = all.reduce((x, y) => Math.min(x, y), Infinity),
        hi = all.reduce((x, y) => Math.max(x, y), -Infinity);
  const log = lo > 0 && hi / lo > 20;
  const at = (v) =>
      (hi > lo ? log ? Math.log(v / lo) / Math.log(hi / lo) : (v - lo) / (hi - lo) : 0.5) * 96 + 2 +
      "%";
  byId("axes").replaceChildren(...effects.map(
      ({axis, values, spread}) => el(
          "div", {class: "sheet"},
          el("h3", {}, axis.name,
             el("span", {class: "soft small", style: {fontWeight: 400}},
                `  best values ${percent(spread)} apart` + (log ? ", logarithmic" : ""))),
          el("div", {class: "places"}, values.flatMap((v, i) => {
            const name = el("span", {title: axis.labels[i]}, axis.labels[i]);
            if (!v.length) return [name, el("span"), el("span", {class: "soft"}, "none")];
            const top = s > 0 ? v[v.length - 1] : v[0], middle = v[Math.floor(v.length / 2)];
            return [
              name,
              el("span", {
                class: "range",
                title: `${grouped(v.length)} points; best ${f.text(top)}, median ${f.text(middle)}`
              },
                 el("i",
                    {style: {left: at(v[0]), width: `calc(${at(v[v.length - 1])} - ${at(v[0])})`}}),
                 el("u", {style: {left: at(middle)}}), el("b", {style: {left: at(top)}})),
              el("span", {}, f.text(top))
            ];
          })))));
}

function errorTable() {
  const by = data.errors.map((text) => ({text, points: []}));
  for (let p = 0; p < N; ++p) {
    const e = rows.error[points.row[p]];
    if (e >= 0) by[e].points.push(p);
  }
  byId("errors-section").hidden = by.length === 0;
  if (by.length)
    table(
        byId("errors"),
        [
          {
            head: "Points",
            num: true,
            value: (e) => e.points.length,
            text: (e) => grouped(e.points.length)
          },
          {
            head: "Which",
            node: (e) => el(
                "span", {}, e.points.slice(0, 6).flatMap((p, i) => [i ? ", " : "", pointLink(p)]),
                e.points.length > 6 ? ", \u2026" : "")
          },
          {head: "Why", class: "long", value: (e) => e.text, text: (e) => e.text}
        ],
        by, {by: 0});
}

function summary() {
  byId("name").textContent = data.name;
  byId("what").textContent = data.question;
  if (data.require.length) {
    byId("required").hidden = false;
    byId("required").textContent =
        `Answers count what ${
                [...(data.fits ? ["fits in memory"] : []), ...data.require].join(", ")}.`
            .replaceAll("_", " ");
  }
  let fitting = 0, large = 0, wrong = 0;
  for (let p = 0; p < N; ++p) {
    const r = points.row[p];
    if (rows.error[r] >= 0)
      ++wrong;
    else if (fits(p))
      ++fitting;
    else
      ++large;
  }
  const tile = (name, value, more, kind) =>
      el("div", {}, el("dt", {}, name), el("dd", {class: "value " + (kind || "")}, value),
         el("dd", {class: "more"}, more || "\u00a0"));
  const f = figureOf(data.objective), s = f.better || -1;
  let top = null;
  for (let p = 0; p < N; ++p) {
    const v = f.of(points.row[p]);
    if (ended(p) && v !== null && counts(p) &&
        (top === null || s * (v - f.of(points.row[top])) > 0))
      top = p;
  }
  byId("figures").replaceChildren(
      tile(
          "Points", grouped(N + data.missing + data.left_out),
          `${grouped(rows.error.length)} scenarios` +
              (data.missing ? `, ${grouped(data.missing)} still to be played` : "")),
      tile(
          "Fit in memory", grouped(fitting),
          large ? `${grouped(large)} do not` : "all that were played", "good"),
      tile("Could not be played", grouped(wrong), wrong ? "listed below" : "", wrong ? "bad" : ""),
      tile(
          `Best ${f.name}`, top === null ? "\u2013" : f.text(f.of(points.row[top])),
          top === null ? "" : el("span", {}, "point ", pointLink(top))));
  if (data.left_out) {
    byId("left-out").hidden = false;
    byId("left-out").textContent = `Left out, for this page to stay small: ${
        grouped(data.left_out)} points, none of them among the best ${grouped(N)} by ${f.name}.`;
  }
}
