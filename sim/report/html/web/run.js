// Puts the page of a run together.

function legends() {
  const used = new Set();
  for (const lane of lanes) {
    for (const look of new Set(lane.look)) used.add(LOOKS[look]);
  }
  const names = [
    ["gemm", "product"], ["attention", "attention"], ["kernel", "other kernel"],
    ["gather", "all-gather"], ["scatter", "reduce-scatter"], ["allreduce", "all-reduce"],
    ["broadcast", "broadcast, reduce"], ["copy", "copy, memset"], ["host", "host"],
    ["exposed", "exposed: a collective runs and no kernel does"]
  ];
  byId("legend").replaceChildren(
      ...names.filter(([c]) => used.has(c))
          .map(([c, t]) => swatch(c, t, c === "exposed" ? "hatch" : "")));
  const m = stack.slice().reverse().map(
      (c) => swatch(COLORS[data.categories[c]] || "m13", words(data.categories[c])));
  if (packed.memory.reserved) m.unshift(swatch("reserved", "reserved by the allocator", "line"));
  byId("memory-legend").replaceChildren(...m);
}

function setClock(clock) {
  packed.memory.time = packed.memory[clock];
  for (const c of ["device", "host"])
    byId("clock-" + c).setAttribute("aria-pressed", String(c === clock));
  redraw();
}
function setHighlight(group) {
  highlight = Number(group);
  redraw();
}

start(async () => {
  summary();
  memoryTables();
  collectiveTable();
  packed = await readPacked();
  let lo = Infinity, hi = -Infinity;
  for (const s of packed.streams)
    if (s.n) {
      lo = Math.min(lo, s.start[0]);
      hi = Math.max(hi, s.start[s.n - 1] + s.length[s.n - 1]);
    }
  for (const [a, b] of steps) {
    lo = Math.min(lo, a);
    hi = Math.max(hi, b);
  }
  if (data.first_step === 0) lo = Math.min(lo, 0);
  if (!(lo < hi)) {
    lo = Number.isFinite(lo) ? lo : 0;
    hi = lo + 1000;
  }
  bounds = [lo, hi];
  makeLanes();
  makeStack();
  windowButtons();
  home();
  legends();
  byId("timeline-lead").textContent = steady ?
      "What each stream runs, from the start of the steady step." :
      "What each stream ran.";
  for (const clock of ["device", "host"])
    byId("clock-" + clock).addEventListener("click", () => setClock(clock));
  setClock("device");
  pick(null);
  const out = data.left_out, said = [];
  if (out.launches > 0)
    said.push(`the ${grouped(out.launches)} launches of the first ${
        out.steps === 1 ?
            "step" :
            out.steps + " steps"} and what is before ${out.steps === 1 ? "it" : "them"}`);
  if (out.short > 0)
    said.push(`the ${grouped(out.short)} shortest launches, none longer than ${
        duration(out.longest_short_ns)}`);
  if (out.memory_points > 0)
    said.push(`${grouped(out.memory_points)} points of memory between higher neighbours`);
  if (said.length) {
    byId("left-out").hidden = false;
    byId("left-out").textContent =
        "Left out, for this page to stay small: " + said.join("; ") + ".";
  }
  byId("highlight")
      .replaceChildren(
          el("option", {value: 0}, "all"),
          ...data.groups.map((g, i) => el("option", {value: i + 1}, g)));
  byId("highlight").addEventListener("change", (e) => setHighlight(e.target.value));
  byId("in").addEventListener("click", () => zoom(0.6, (view[0] + view[1]) / 2));
  byId("out").addEventListener("click", () => zoom(1 / 0.6, (view[0] + view[1]) / 2));
  byId("lanes").setAttribute("aria-label", `Timeline: ${lanes.map((l) => l.name).join(", ")}`);
  byId("memory").setAttribute(
      "aria-label",
      `Memory over time by category, at most ${bytes(memoryFacts.peak_allocated_bytes)} live`);
  exposedTable();
  groupTable();
  listen(byId("lanes"), overLanes);
  listen(byId("memory"), overMemory);
  drawn.push(drawLanes, drawMemory);
  drawAll();
});
