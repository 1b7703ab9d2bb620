// Puts the page of a sweep together.

let syncChips = () => {};
function update() {
  choose();
  syncChips();
  legend();
  best();
  axisEffects();
  byId("count").textContent = `${grouped(shown.length)} of ${grouped(N)} points shown` +
      (front.length ? `, ${grouped(front.length)} of them on the front of ${
                          figureOf(state.x).name} and ${figureOf(state.y).name}.` :
                      ".");
  byId("scatter").setAttribute(
      "aria-label",
      `Scatter of ${figureOf(state.y).name} against ${figureOf(state.x).name}, ${
          grouped(shown.length)} points, ${grouped(front.length)} on the front`);
  redraw();
}

start(async () => {
  // A sweep of which nothing has ended.
  if (FIGURES.length === 0)
    FIGURES.push({key: "step-time", name: "step time", better: -1, of: () => null, text: seconds});
  summary();
  const options = (id, list, value, change) => {
    byId(id).replaceChildren(...list.map(([v, t]) => el("option", {value: v}, t)));
    byId(id).value = value;
    byId(id).addEventListener("change", (e) => {
      change(e.target.value);
      update();
    });
  };
  const check = (id, change) => byId(id).addEventListener("change", (e) => {
    change(e.target.checked);
    update();
  });
  const named = FIGURES.map((f) => [f.key, f.name]);
  options("x", named, figureOf(state.x).key, (v) => {
    state.x = v;
  });
  options("y", named, figureOf(state.y).key, (v) => {
    state.y = v;
  });
  state.objective = figureOf(state.objective).key;
  options("objective", named.filter(([k]) => figureOf(k).better), state.objective, (v) => {
    state.objective = v;
  });
  const colored =
      data.axes.map((a, i) => [i, a.name]).filter(([i]) => data.axes[i].labels.length > 1);
  state.by = colored.length ? colored[0][0] : -1;
  options("by", [[-1, "one colour"], ...colored], state.by, (v) => {
    state.by = Number(v);
  });
  check("x-log", (v) => {
    state.xLog = v;
  });
  check("y-log", (v) => {
    state.yLog = v;
  });
  check("front-only", (v) => {
    state.frontOnly = v;
  });
  byId("more").addEventListener("click", () => {
    state.most *= 4;
    bestTable.fill();
    best();
  });
  syncChips = filters();
  errorTable();
  scatterEvents();
  drawn.push(drawScatter);
  update();
  openHash(true);
  addEventListener("hashchange", () => openHash(true));
  drawAll();
});
