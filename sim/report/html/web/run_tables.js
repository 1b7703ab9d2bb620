// The tables below the charts.

function exposedTable() {
  const list = steady ? packed.exposed[packed.exposed.length - 1] : [];
  byId("exposed-section").hidden = list.length === 0;
  if (!list.length) return;
  const all = list.reduce((sum, e) => sum + e.length, 0);
  byId("exposed-lead").textContent = `${grouped(list.length)} stretches, ${
      duration(
          all)}: what the compute stream was waiting for while a collective ran and no kernel did.`;
  table(
      byId("exposed"),
      [
        {head: "From", num: true, value: (e) => e.start, text: (e) => duration(e.start - zero())},
        {head: "For", num: true, value: (e) => e.length, text: (e) => duration(e.length)},
        {head: "Waits on", class: "name", value: (e) => e.on, text: (e) => firstWords(e.on)},
        {head: "Cause", value: (e) => e.cause, text: (e) => words(e.cause)}, {
          head: "",
          node: (e) =>
              el("button", {
                type: "button",
                class: "link",
                onclick: () => {
                  show(e.start - 1.5 * e.length, e.start + 2.5 * e.length);
                  byId("h-timeline").scrollIntoView();
                  byId("lanes").focus({preventScroll: true});
                }
              },
                 "show")
        }
      ],
      list, {by: 1, most: () => 500});
}

function groupTable() {
  const by = memoryFacts.by_group, times = data.group_times;
  const rows = report.groups.map(
      (g, i) =>
          ({...g, ...(times[i] || {}), i, label: data.groups[i], peak: by[i] ? by[i].bytes : 0}));
  const rest = times[report.groups.length];
  if (rest || by.length > rows.length)
    rows.push({
      i: -1,
      label: "(no group)",
      ...rest,
      peak: by.length > rows.length - 0 ? by[by.length - 1].bytes : 0
    });
  const some = (f) => rows.some((r) => f(r) > 0);
  const time = (head, f, title) => ({
    head,
    title,
    num: true,
    value: (r) => f(r) || 0,
    text: (r) => f(r) > 0 ? seconds(f(r)) : "\u2013"
  });
  const size = (head, f, title) => ({
    head,
    title,
    num: true,
    value: (r) => f(r) || 0,
    text: (r) => f(r) > 0 ? bytes(f(r)) : "\u2013"
  });
  const columns = [
    {
      head: "Group",
      class: "name",
      value: (r) => r.i < 0 ? 1e9 : r.i,
      text: (r) => r.label,
      node: (r) => r.i < 0 ? r.label :
                             el("button", {
                               type: "button",
                               class: "link",
                               onclick: () => {
                                 byId("highlight").value = r.i + 1;
                                 setHighlight(r.i + 1);
                                 byId("h-timeline").scrollIntoView();
                               }
                             },
                                r.label)
    },
    {
      head: "Parameters",
      num: true,
      value: (r) => r.numel || 0,
      text: (r) => r.numel ? grouped(r.numel) : "\u2013"
    },
    size("Shard", (r) => r.shard_bytes, "of a rank, in the storage type")
  ];
  if (some((r) => r.all_gather_s))
    columns.push(time("Unshard", (r) => r.all_gather_s, "all-gathers of a step"));
  if (rows.some((r) => r.i >= 0 && r.forward_s + r.backward_s > 0))
    columns.push(
        time("Forward", (r) => r.forward_s, "kernels"),
        time("Backward", (r) => r.backward_s, "kernels, recomputation included"));
  if (rows.some((r) => r.i >= 0 && r.optimizer_s > 0))
    columns.push(time("Optimizer", (r) => r.optimizer_s));
  if (some((r) => r.reduce_s))
    columns.push(
        time("Reduce", (r) => r.reduce_s, "reduce-scatter, all-reduce and so on, of a step"));
  if (some((r) => r.all_gather_s) || some((r) => r.reduce_s))
    columns.push(time("Exposed", (r) => r.exposed_s));
  if (some((r) => r.gathered_bytes))
    columns.push(size("Gathered", (r) => r.gathered_bytes, "whole tensors, all gathers of a step"));
  if (some((r) => r.reduced_bytes))
    columns.push(
        size("Reduced", (r) => r.reduced_bytes, "whole tensors, all reductions of a step"));
  columns.push(
      size("At the peak", (r) => r.peak, "live bytes when memory is highest"),
      {head: "Reshard", value: (r) => r.reshard || "", text: (r) => r.reshard || "\u2013"});
  table(byId("groups"), columns, rows, {by: 0, down: false});
}

function memoryTables() {
  const m = memoryFacts, all = Math.max(1, Object.values(m.by_category).reduce((a, b) => a + b, 0));
  byId("peak-lead").textContent = failed ?
      `What was live when memory ran out, ${m.peak_phase}.` :
      `What is live at ${bytes(m.peak_allocated_bytes)}${
          m.peak_phase ? `, before the mark ${m.peak_phase}` : ""}.`;
  const rows = Object.entries(m.by_category).filter(([, n]) => n > 0);
  table(
      byId("by-category"),
      [
        {head: "Category", value: ([c]) => c, node: ([c]) => swatch(COLORS[c] || "m13", words(c))},
        {head: "Bytes", num: true, value: ([, n]) => n, text: ([, n]) => bytes(n)},
        {head: "Share", num: true, value: ([, n]) => n, text: ([, n]) => percent(n / all)}
      ],
      rows, {by: 1});
  const marks = m.marks, blocks = marks.some((r) => r.reserved_bytes !== null);
  const columns = [
    {head: "Up to the mark", class: "name", text: (r) => r.mark}, {
      head: blocks ? "Allocated peak" : "Peak",
      num: true,
      value: (r) => r.peak_allocated_bytes,
      text: (r) => bytes(r.peak_allocated_bytes)
    }
  ];
  if (blocks)
    columns.push({
      head: "Reserved peak",
      num: true,
      value: (r) => r.peak_reserved_bytes ?? 0,
      text: (r) => r.peak_reserved_bytes === null ? "\u2013" : bytes(r.peak_reserved_bytes)
    });
  columns.push({
    head: "Live then",
    num: true,
    value: (r) => r.allocated_bytes,
    text: (r) => bytes(r.allocated_bytes)
  });
  table(byId("by-phase"), columns, marks);
}

function collectiveTable() {
  const merged = new Map();
  for (const c of report.collectives) {
    const key = c.kind + "\n" + c.communicator;
    const row = merged.get(key) || {
      kind: c.kind,
      communicator: c.communicator,
      count: 0,
      bytes: 0,
      time: 0,
      exposed: 0,
      most: 0,
      nccl: ""
    };
    row.count += c.count;
    row.bytes += c.bytes_total;
    row.time += c.time_s;
    row.exposed += c.exposed_s;
    const one = c.bytes_total / Math.max(1, c.count);
    if (one >= row.most) {
      row.most = one;
      row.nccl =
          c.algorithm ? c.algorithm + (c.protocol ? `/${c.protocol}, ${c.ctas} blocks` : "") : "";
    }
    merged.set(key, row);
  }
  const rows = [...merged.values()];
  if (!rows.length)
    return byId("collectives")
        .replaceChildren(el("p", {class: "pad soft"}, "None: nothing is communicated."));
  const columns = [
    {head: "Kind", value: (r) => r.kind, text: (r) => words(r.kind)}, {
      head: "Communicator",
      class: "name",
      value: (r) => r.communicator || "",
      text: (r) => r.communicator || "\u2013"
    },
    {head: "Count", num: true, value: (r) => r.count, text: (r) => grouped(r.count)},
    {head: "Bytes", num: true, value: (r) => r.bytes, text: (r) => bytes(r.bytes)},
    {head: "Time", num: true, value: (r) => r.time, text: (r) => seconds(r.time)},
    {head: "Exposed", num: true, value: (r) => r.exposed, text: (r) => seconds(r.exposed)}
  ];
  if (rows.some((r) => r.nccl))
    columns.push({head: "NCCL, the largest", text: (r) => r.nccl || "\u2013"});
  table(byId("collectives"), columns, rows);
}
