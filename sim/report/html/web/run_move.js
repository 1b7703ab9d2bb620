// What is shown of the run, and what the pointer is on.

function show(from, to) {
  const least = 20, most = bounds[1] - bounds[0];
  let length = Math.min(most, Math.max(least, to - from));
  const middle = (from + to) / 2;
  let a = middle - length / 2;
  a = Math.min(Math.max(a, bounds[0]), bounds[1] - length);
  view = [a, a + length];
  for (const b of byId("windows").children)
    b.setAttribute(
        "aria-pressed", String(Math.abs(b.from - view[0]) < 1 && Math.abs(b.to - view[1]) < 1));
  redraw();
}
const zoom = (factor, t) => show(t - (t - view[0]) * factor, t + (view[1] - t) * factor);
const move = (part) => {
  const d = part * (view[1] - view[0]);
  show(view[0] + d, view[1] + d);
};
const home = () => {
  const b = byId("windows").children[0];
  show(b.from, b.to);
};

function windowButtons() {
  const
      list = [],
      pad =
          (a,
           b) => [Math.max(bounds[0], a - (b - a) * 0.01), Math.min(bounds[1], b + (b - a) * 0.01)];
  if (steady)
    list.push(
        [steps.length > 1 || data.first_step > 0 ? "Steady step" : "Step", ...pad(...steady)]);
  if (steps.length > 1) list.push([`Step ${data.first_step + 1}`, ...pad(...steps[0])]);
  if (!steady || bounds[1] - bounds[0] > 1.05 * (steady[1] - steady[0]))
    list.push(["All", ...bounds]);
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
    if (d < far || (d === far && lengthOf(lane, i) > lengthOf(lane, best))) {
      far = d;
      best = i;
    }
    if (d > 0 && a > t) break;
  }
  return best === null ? null : {lane, i: best};
}

function describe({lane, i}) {
  const start = startOf(lane, i), length = lengthOf(lane, i);
  const rows =
      [["start", duration(start - zero()).replace(/^-/, "\u2212")], ["duration", duration(length)]];
  if (lane.kind === "exposed") {
    const e = lane.list[i];
    if (e.on) rows.push(["waits on", firstWords(e.on)], ["cause", words(e.cause)]);
    return ["exposed communication", rows];
  }
  if (lane.kind !== "stream")
    return [
      lane.list[i].name,
      rows.concat([["on", lane.kind === "host" ? "the host, issuing" : "the host itself"]])
    ];
  const cls = packed.cls, c = lane.cls[i], kind = cls.kind[c], s = length / 1e9;
  if (cls.group[c]) rows.push(["group", data.groups[cls.group[c] - 1]]);
  if (cls.comm[c]) rows.push(["communicator", data.communicators[cls.comm[c] - 1]]);
  if (cls.bytes[c])
    rows.push([
      "bytes",
      bytes(cls.bytes[c]) + (s > 0 && kind !== MEMSET ? `, ${si(cls.bytes[c] / s, "B/s")}` : "")
    ]);
  if (cls.flops[c])
    rows.push(
        ["FLOPs", si(cls.flops[c], "FLOP") + (s > 0 ? `, ${si(cls.flops[c] / s, "FLOPS")}` : "")]);
  if (cls.flags[c] & 1) rows.push(["", "recomputed by checkpointing"]);
  if (lane.slowed[i]) rows.push(["sharing adds", duration(lane.slowed[i])]);
  rows.push(
      ["issued", `${duration(Math.max(0, lane.lag[i]))} before it starts`], ["stream", lane.name]);
  return [words(data.names[cls.name[c]]), rows];
}

function pick(at) {
  chosen = at;
  if (!at) {
    byId("picked").replaceChildren(
        el("span", {class: "soft"}, "A click on a launch keeps its figures here."));
    return redraw();
  }
  const [title, rows] = describe(at);
  byId("picked").replaceChildren(
      el("strong", {}, title),
      " \u2013 " + rows.map(([k, v]) => `${k} ${v}`.trim()).join(" \u00b7 "));
  redraw();
}

function pickNext(by) {
  const lane = chosen ? chosen.lane : lanes.find((l) => l.n);
  if (!lane) return;
  const i = Math.min(lane.n - 1, Math.max(0, chosen ? chosen.i + by : firstBehind(lane, view[0])));
  pick({lane, i});
  const a = startOf(lane, i), b = a + lengthOf(lane, i);
  if (a < view[0] || b > view[1]) {
    const half = (view[1] - view[0]) / 2;
    show((a + b) / 2 - half, (a + b) / 2 + half);
  }
}

function listen(canvas, overThe) {
  const touches = new Map();
  let dragged = 0;
  const place = (e) => {
    const r = canvas.getBoundingClientRect();
    return [e.clientX - r.left, e.clientY - r.top, r.width];
  };
  canvas.addEventListener("wheel", (e) => {
    const [x, , width] = place(e);
    if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) {
      e.preventDefault();
      move((e.deltaX || e.deltaY) / width);
    } else if (e.ctrlKey || e.metaKey || document.activeElement === canvas) {
      e.preventDefault();
      zoom(
          Math.exp(Math.max(-1, Math.min(1, e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.002)))),
          tOf(x, width));
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
        if (dragged > 3) {
          hideTip();
          const d = (last - x) / width * (view[1] - view[0]);
          show(view[0] + d, view[1] + d);
        }
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
    if (touches.delete(e.pointerId) && e.type === "pointerup" && dragged <= 3 &&
        canvas.id === "lanes")
      pick(hit(x, y, width));
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    hover = null;
    cursor = null;
    redraw();
  });
  canvas.addEventListener("keydown", (e) => {
    const keys = {
      ArrowLeft: () => move(-0.15),
      ArrowRight: () => move(0.15),
      "+": () => zoom(0.7, (view[0] + view[1]) / 2),
      "=": () => zoom(0.7, (view[0] + view[1]) / 2),
      "-": () => zoom(1 / 0.7, (view[0] + view[1]) / 2),
      0: home,
      Home: home,
      "[": () => pickNext(-1),
      "]": () => pickNext(1),
      Escape: () => pick(null)
    };
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
  const m = packed.memory,
        i = memoryPixels(width)[Math.min(Math.ceil(width) - 1, Math.max(0, Math.floor(x)))];
  if (i < 0) return hideTip();
  const rows = stack.map((c) => [words(data.categories[c]), m.held[c][i]])
                   .filter(([, n]) => n > 0)
                   .reverse()
                   .map(([k, n]) => [k, bytes(n)]);
  if (m.reserved) rows.unshift(["reserved", bytes(m.reserved[i])]);
  showTip(
      e.clientX, e.clientY,
      `${bytes(m.total[i])} live at ${duration(m.time[i] - zero()).replace(/^-/, "\u2212")}`, rows,
      true);
}
