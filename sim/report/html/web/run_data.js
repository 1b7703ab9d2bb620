// The page of a run. Times are whole nanoseconds from the start of the run.

const report = data.report, facts = data.facts, memoryFacts = report.memory;
const steps = data.steps, steady = steps.length ? steps[steps.length - 1] : null;
const failed = memoryFacts.oom_message !== null && steps.length === 0;

// Columns in the order in which page_run.cpp writes them.
async function readPacked() {
  const text = atob(byId("packed").textContent), packed = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) packed[i] = text.charCodeAt(i);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  const b = new Uint8Array(await new Response(stream).arrayBuffer());
  let at = 0;
  const next = () => {
    let n = 0, scale = 1, byte;
    do {
      byte = b[at++];
      n += (byte & 127) * scale;
      scale *= 128;
    } while (byte > 127);
    return n;
  };
  const signed = () => {
    const n = next();
    return n % 2 ? -(n + 1) / 2 : n / 2;
  };
  const column = (n, read, Type) => {
    const c = new Type(n);
    for (let i = 0; i < n; ++i) c[i] = read();
    return c;
  };

  const count = next();
  const cls = {};
  for (const name of ["kind", "name", "group", "comm", "bytes", "flops", "flags"])
    cls[name] = column(count, next, Float64Array);
  const streams = data.streams.map((name) => {
    const n = next();
    const start = column(n, signed, Float64Array), length = column(n, next, Float64Array);
    let end = 0;
    for (let i = 0; i < n; ++i) {
      start[i] += end;
      end = start[i] + length[i];
    }
    return {
      name,
      n,
      start,
      length,
      cls: column(n, next, Uint32Array),
      lag: column(n, signed, Float64Array),
      slowed: column(n, next, Float64Array)
    };
  });
  const worked = [];
  for (let n = next(), end = 0; n > 0; --n) {
    const start = end + signed(), length = signed();
    worked.push({start, length, name: data.names[next()]});
    end = start + length;
  }
  const exposed = steps.map(() => {
    const list = [];
    for (let n = next(), end = 0; n > 0; --n) {
      const start = end + signed(), length = signed(), cause = next(), on = next();
      list.push({
        start,
        length,
        cause: cause ? data.causes[cause - 1] : "",
        on: cause ? data.names[on] : ""
      });
      end = start + length;
    }
    return list;
  });
  const points = next(), total = new Float64Array(points);
  const times = () => {
    let t = 0;
    return column(points, () => t += signed(), Float64Array);
  };
  const host = times(), device = times();
  const held = data.categories.map(() => null);
  for (let i = 0; i < points; ++i) {
    for (const h of held)
      if (h && i) h[i] = h[i - 1];
    for (let n = next(); n > 0; --n) {
      const c = next(), change = signed() * 512;
      held[c] ??= new Float64Array(points);
      held[c][i] += change;
    }
    let sum = 0;
    for (const h of held)
      if (h) sum += h[i];
    total[i] = sum;
  }
  let reserved = null;
  if (next()) {
    reserved = new Float64Array(points);
    for (let i = 0, r = 0; i < points; ++i) reserved[i] = r += signed() * 512;
  }
  return {
    cls,
    streams,
    worked,
    exposed,
    memory: {n: points, host, device, time: device, total, held, reserved}
  };
}

const GATHER = data.kinds.indexOf("all_gather"), MEMSET = data.kinds.indexOf("memset");
const colorOfKind = data.kinds.map(
    (k) => ({
             gemm: "gemm",
             kernel: "kernel",
             all_gather: "gather",
             reduce_scatter: "scatter",
             all_reduce: "allreduce",
             broadcast: "broadcast",
             reduce: "broadcast"
           })[k] ||
        "copy");
// "all_gather model.lm_head" with the name as it is.
const firstWords = (text) => text.replace(/^\S+/, words);
const isCollective = (kind) =>
    kind >= GATHER && data.kinds[kind] && /gather|scatter|reduce|broadcast/.test(data.kinds[kind]);
