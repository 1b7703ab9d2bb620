// The figures above the charts, and what they rest on below them.

const tokenCount = (n) => n >= 1e12 ? `${+ (n / 1e12).toPrecision(4)}T` :
    n >= 1e9 ? `${+ (n / 1e9).toPrecision(4)}B` :
               grouped(n);

function summary() {
  const c = report.cluster;
  byId("name").textContent = report.name;
  byId("what").textContent = `${report.model.name}, ${report.strategy} on ${
                                 grouped(c.world)} \u00d7 ${c.gpu} (${c.name}), ` +
      `${grouped(facts.tokens_per_step)} tokens a GPU and step`;
  const figure = (label, value, more, kind) =>
      el("div", {}, el("dt", {}, label), el("dd", {class: "value " + (kind || "")}, value),
         el("dd", {class: "more"}, more || "\u00a0"));
  const tiles = [], last = report.steps[report.steps.length - 1];
  const peak = memoryFacts.peak_reserved_bytes ?? memoryFacts.peak_allocated_bytes;
  if (last) {
    const rate = report.tokens_per_s_per_gpu;
    tiles.push(
        figure(
            "Step time", seconds(report.step_time_s),
            steps.length > 1 || report.steps.length > 1 ?
                `first step ${seconds(report.first_step_time_s)}` :
                ""),
        figure("Tokens a second and GPU", grouped(rate), `${grouped(rate * c.world)} in all`),
        figure(
            "MFU", facts.peak_tflops > 0 && report.mfu > 0 ? percent(report.mfu) : "\u2013",
            facts.peak_tflops > 0 ? `of ${facts.peak_tflops} ${facts.compute_dtype} TFLOPS` +
                    (facts.hardware_flops ? `; HFU ${percent(report.hfu)}` : "") :
                                            ""),
        figure(
            "Exposed communication", percent(last.exposed_comm_s / last.step_time_s),
            `${seconds(last.exposed_comm_s)} of the step`),
        figure(
            "Communication hidden", percent(last.overlap_fraction),
            `of ${seconds(last.comm_busy_s)}`),
        figure("Host-bound", percent(last.host_bound_fraction), "of the step waits for the host"));
  }
  tiles.push(
      figure(
          "Peak memory", bytes(peak),
          `of ${bytes(memoryFacts.capacity_bytes)}, ` +
              (memoryFacts.peak_reserved_bytes === null ? "live tensors" : "reserved")),
      memoryFacts.oom ?
          figure("Headroom", bytes(memoryFacts.headroom_bytes), "out of memory", "bad") :
          figure("Headroom", bytes(memoryFacts.headroom_bytes), "fits", "good"));
  const plan = report.planning;
  if (plan)
    tiles.push(
        figure(
            `Hours of ${tokenCount(plan.tokens)} tokens`, fixed(plan.hours, 1),
            `${fixed(plan.days, 1)} days, ${grouped(plan.steps)} steps`),
        figure(
            "GPU-hours", grouped(plan.gpu_hours),
            plan.cost === null ? "no price is stated" :
                                 `${grouped(plan.cost)} at ${plan.price_per_gpu_hour} an hour`));
  byId("figures").replaceChildren(...tiles);
  if (memoryFacts.oom) {
    byId("verdict").hidden = false;
    byId("verdict").textContent =
        `Out of memory: ${memoryFacts.oom_message ? "at least " : ""}${
            bytes(memoryFacts.oom_missing_bytes)} are missing; the largest part is ` +
        `${words(memoryFacts.oom_largest_category)}. ${memoryFacts.oom_message || ""}`;
  }
  shares(last);
  notes();
}

function shares(last) {
  if (!last) return;
  const rest = Math.max(0, last.step_time_s - last.compute_busy_s - last.exposed_comm_s);
  const parts = [
    ["compute", last.compute_busy_s, "gemm"],
    ["exposed communication", last.exposed_comm_s, "exposed"],
    ["neither: copies, or nothing runs", rest, "copy"]
  ];
  byId("shares").replaceChildren(
      el("h3", {}, "Where the step goes"),
      el("div", {class: "strip"},
         parts.map(([, s, c]) => el("span", {
                     style: {width: 100 * s / last.step_time_s + "%", background: `var(--${c})`}
                   }))),
      el("div", {class: "legend"},
         parts.map(([name, s,
                     c]) => swatch(c, `${name} ${seconds(s)}, ${percent(s / last.step_time_s)}`))));
}

function notes() {
  const by = new Map();
  for (const i of report.interference || [])
    by.set(i.by.split(" ")[0], (by.get(i.by.split(" ")[0]) || 0) + i.time_s);
  const parts = [...by].sort((a, b) => b[1] - a[1]);
  if (parts.length)
    byId("shares").append(
        el("p", {class: "small soft", style: {marginTop: "8px"}},
           `Links, memory and SMs shared with collectives add ${seconds(report.interference_s)} (${
               percent(report.interference_s / report.step_time_s)} of the step) to kernels: ` +
               parts.map(([kind, s]) => `${seconds(s)} by ${words(kind)}`).join(", ") + "."));
  for (const note of report.notes || [])
    byId("shares").append(
        el("p", {class: "small soft", style: {marginTop: "8px"}}, "Note: " + note));
  byId("priced").replaceChildren(...report.priced_with.flatMap(
      (p) =>
          [el("dt", {}, p.what),
           el("dd", {}, String(p.value).trim(),
              p.assumed && el("span", {class: "tag"}, "assumed"))]));
  if (report.priced_with.length === 0) byId("priced").append(el("dd", {}, "flat costs"));
  const c = report.cluster;
  const rows = [
    ["model", `${report.model.name}, ${grouped(report.model.params)} parameters`],
    ["strategy", report.strategy],
    ["cluster", `${c.name}, ${grouped(c.nodes)} \u00d7 ${c.gpus_per_node} ${c.gpu}`],
    ["ranks", grouped(c.world)], ["MFU counts", report.mfu_definition],
    [
      "memory",
      memoryFacts.peak_reserved_bytes === null ?
          "live tensors; what the allocator reserves is not played" :
          "the caching allocator, block by block"
    ]
  ];
  const links = report.link_utilisation;
  if (links)
    rows.push([
      "links in use",
      Object.entries(links)
              .filter(([, x]) => x > 0)
              .map(([k,
                     x]) => `${{nvlink: "NVLink", nic: "NIC", pcie: "PCIe"}[k] || k} ${percent(x)}`)
              .join(", ") ||
          "none"
    ]);
  byId("scenario").replaceChildren(...rows.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}
