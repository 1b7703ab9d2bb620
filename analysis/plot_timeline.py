#!/usr/bin/env python3
"""Draws the streams of one step from a Chrome trace of one rank, as SVG.

    plot_timeline.py rank0.pt.trace.json -o timeline.svg [--step 1] [--from 0.0 --to 1.0]

One bar for each stream: compute, copies and collectives in their own colours, exposed communication
marked below. --from and --to are fractions of the step. Standard library only.
"""
import argparse
import gzip
import json
import re
import sys
from xml.sax.saxutils import escape

# Okabe and Ito's palette: told apart by readers with any colour vision.
COLOURS = {
    "products and attention": "#0072B2",
    "other kernels": "#56B4E9",
    "all-gather": "#E69F00",
    "reduce-scatter": "#D55E00",
    "other collectives": "#CC79A7",
    "copies": "#999999",
    "exposed": "#000000",
}


def kind_of(event):
    name = event["name"]
    if event["cat"] != "kernel":
        return "copies"
    if name.startswith("nccl"):
        if "AllGather" in name:
            return "all-gather"
        return "reduce-scatter" if "ReduceScatter" in name else "other collectives"
    product = name.startswith("nvjet") or "attention" in name
    return "products and attention" if product else "other kernels"


def merged(intervals):
    out = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return out


def without(intervals, holes):
    """Parts of merged `intervals` that no one of merged `holes` covers."""
    out = []
    for start, end in intervals:
        at = start
        for hole_start, hole_end in holes:
            if hole_end <= at or hole_start >= end:
                continue
            if hole_start > at:
                out.append((at, hole_start))
            at = max(at, hole_end)
        if at < end:
            out.append((at, end))
    return out


def load(path):
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        return json.load(file)


def step_of(trace, wanted):
    """(rows, start, end): slices by stream of a step, as (kind, start, end) in us."""
    events = trace["traceEvents"]
    launch_at = {e["args"]["correlation"]: e["ts"] for e in events if e.get("cat") == "cuda_runtime"}
    steps = sorted((e["ts"], e["ts"] + e["dur"]) for e in events
                   if e["name"].startswith("ProfilerStep#"))
    if len(steps) < 2:
        sys.exit("no step in this trace")
    number = len(steps) - 2 if wanted is None else wanted
    if not 0 <= number < len(steps) - 1:
        sys.exit(f"this trace has steps 0 to {len(steps) - 2}")
    begin, end = steps[number][0], steps[number + 1][0]
    rows, before, last = {}, 0.0, 0.0
    for e in events:
        if e.get("cat") not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        stop = e["ts"] + e["dur"]
        issued = launch_at[e["args"]["correlation"]]
        # A step ends with the last of what its host part launched, and the next begins there.
        if issued < begin:
            before = max(before, stop)
        elif issued < end:
            last = max(last, stop)
            rows.setdefault(e["tid"], []).append((kind_of(e), e["ts"], stop))
    if number == 0 and before == 0.0:
        before = begin
    return rows, before, last, number


def stream_names(trace):
    names = {}
    for e in trace["traceEvents"]:
        if e["ph"] == "M" and e["name"] == "thread_name":
            names[e["tid"]] = re.sub(r"^stream \d+ ", "", e["args"]["name"])
    return names


def bars_of(rows, start, end):
    """Adjacent slices of a kind become one bar: a step has thousands of kernels, a picture not."""
    least = (end - start) / 2000
    out = {}
    for tid, slices in rows.items():
        bars = []
        for kind, a, b in sorted(slices, key=lambda s: s[1]):
            a, b = max(a, start), min(b, end)
            if b <= a:
                continue
            if bars and bars[-1][0] == kind and a - bars[-1][2] <= least:
                bars[-1][2] = b
            else:
                bars.append([kind, a, b])
        if bars:
            out[tid] = bars
    return out


def exposed_of(rows, start, end):
    comm, compute = [], []
    for slices in rows.values():
        for kind, a, b in slices:
            a, b = max(a, start), min(b, end)
            if b <= a or kind == "copies":
                continue
            (compute if kind in ("products and attention", "other kernels") else comm).append((a, b))
    return without(merged(comm), merged(compute))


def svg(names, bars, exposed, begin, start, end, title):
    left, width, height, gap = 150, 1000, 26, 8
    scale = width / (end - start)
    order = sorted(bars)
    bottom = 40 + (len(order) + 1) * (height + gap)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 50}" '
        f'height="{bottom + 60}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{left}" y="20" font-size="14">{escape(title)}</text>',
    ]
    used = []

    def bar(y, kind, a, b, h=height):
        if kind not in used:
            used.append(kind)
        out.append(f'<rect x="{left + (a - start) * scale:.2f}" y="{y}" '
                   f'width="{max(0.3, (b - a) * scale):.2f}" height="{h}" fill="{COLOURS[kind]}"/>')

    y = 34
    for tid in order:
        label = escape(names.get(tid, f"stream {tid}"))
        out.append(f'<text x="{left - 8}" y="{y + height - 8}" text-anchor="end">{label}</text>')
        for kind, a, b in bars[tid]:
            bar(y, kind, a, b)
        y += height + gap
    out.append(f'<text x="{left - 8}" y="{y + 11}" text-anchor="end">exposed</text>')
    for a, b in exposed:
        bar(y, "exposed", a, b, 10)
    y += 28
    for i in range(6):
        x = left + width * i / 5
        ms = (start - begin + (end - start) * i / 5) / 1000
        out.append(f'<line x1="{x}" y1="{y - 10}" x2="{x}" y2="{y - 5}" stroke="black"/>')
        out.append(f'<text x="{x}" y="{y + 8}" text-anchor="middle">{ms:.4g} ms</text>')
    x = left
    for kind in [k for k in COLOURS if k in used]:
        out.append(f'<rect x="{x}" y="{y + 20}" width="12" height="12" fill="{COLOURS[kind]}"/>')
        out.append(f'<text x="{x + 16}" y="{y + 30}">{kind}</text>')
        x += 40 + 7 * len(kind)
    out.append("</svg>\n")
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trace")
    parser.add_argument("-o", "--output", default="timeline.svg")
    parser.add_argument("--step", type=int, help="counted from 0; default the last")
    parser.add_argument("--from", dest="first", type=float, default=0.0)
    parser.add_argument("--to", dest="last", type=float, default=1.0)
    parser.add_argument("--title")
    args = parser.parse_args()
    if not 0 <= args.first < args.last <= 1:
        parser.error("--from and --to are fractions of the step, --from the smaller")
    trace = load(args.trace)
    rows, begin, end, number = step_of(trace, args.step)
    start = begin + (end - begin) * args.first
    stop = begin + (end - begin) * args.last
    bars = bars_of(rows, start, stop)
    exposed = exposed_of(rows, start, stop)
    title = args.title or f"step {number}, {(end - begin) / 1000:.4g} ms"
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(svg(stream_names(trace), bars, exposed, begin, start, stop, title))
    return 0


if __name__ == "__main__":
    sys.exit(main())
