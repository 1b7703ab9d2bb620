#!/usr/bin/env python3
"""Writes the validation page: validation_page.py SHARDSIM TABLE.csv OUTDIR

Runs `SHARDSIM validate TABLE.csv --format json` and writes OUTDIR/validation.md with
OUTDIR/validation.svg (predicted against measured): errors by source, by size, by scale, the worst ten
rows explained, what was left out and the fitted constants. Standard library only.
"""
import collections
import json
import math
import pathlib
import subprocess
import sys

WIDTH, HEIGHT, MARGIN = 640, 560, 56
COLORS = {"fit": "#2563eb", "test": "#059669", "apart": "#9ca3af", "contradictory": "#dc2626",
          "unlisted": "#d97706"}


def best(row):
    """What the model is judged by: its source left out, where that was done."""
    for key in ("left_out_error_pct", "fitted_error_pct", "error_pct"):
        if row.get(key) is not None:
            return row[key]
    return None


def stats(errors):
    if not errors:
        return None
    size = sorted(abs(e) for e in errors)
    half = len(size) // 2
    median = size[half] if len(size) % 2 else (size[half - 1] + size[half]) / 2
    return len(errors), sum(size) / len(size), median, sum(errors) / len(errors), max(errors, key=abs)


def line(name, errors):
    s = stats(errors)
    if s is None:
        return ""
    return f"| {name} | {s[0]} | {s[1]:.1f} | {s[2]:.1f} | {s[3]:+.1f} | {s[4]:+.1f} |\n"


HEAD = "| {} | rows | mean, % | median | bias | worst |\n|---|---|---|---|---|---|\n"


def table(title, groups):
    return HEAD.format(title) + "".join(line(k, v) for k, v in groups)


def scatter(rows):
    times = [t for r in rows for t in (r["measured"], r["predicted"])]
    low, high = math.log10(min(times)), math.log10(max(times))
    pad = 0.05 * (high - low)
    low, high = low - pad, high + pad

    def x(t):
        return MARGIN + (math.log10(t) - low) / (high - low) * (WIDTH - 2 * MARGIN)

    def y(t):
        return HEIGHT - MARGIN - (math.log10(t) - low) / (high - low) * (HEIGHT - 2 * MARGIN)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           '<style>text{fill:#374151}.a{stroke:#9ca3af}'
           '@media(prefers-color-scheme:dark){text{fill:#d1d5db}}</style>']
    for power in range(math.ceil(low), math.floor(high) + 1):
        t = 10.0 ** power
        out.append(f'<line class="a" x1="{x(t):.1f}" y1="{MARGIN}" x2="{x(t):.1f}" '
                   f'y2="{HEIGHT - MARGIN}" opacity=".4"/>')
        out.append(f'<line class="a" x1="{MARGIN}" y1="{y(t):.1f}" x2="{WIDTH - MARGIN}" '
                   f'y2="{y(t):.1f}" opacity=".4"/>')
        label = f"{t:g} s"
        out.append(f'<text x="{x(t):.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{label}</text>')
        out.append(f'<text x="{MARGIN - 6}" y="{y(t) + 4:.1f}" text-anchor="end">{label}</text>')
    ends = [10 ** low, 10 ** high]
    for factor, dash in ((1, ""), (1.1, ' stroke-dasharray="4 4"'), (1 / 1.1, ' stroke-dasharray="4 4"')):
        a, b = ends[0] * max(1, 1 / factor), ends[1] * min(1, 1 / factor)
        out.append(f'<line class="a" x1="{x(a):.1f}" y1="{y(a * factor):.1f}" x2="{x(b):.1f}" '
                   f'y2="{y(b * factor):.1f}"{dash}/>')
    order = ["apart", "unlisted", "test", "fit", "contradictory"]
    for role in order:
        for r in rows:
            if r["role"] == role:
                out.append(f'<circle cx="{x(r["measured"]):.1f}" cy="{y(r["predicted"]):.1f}" r="3" '
                           f'fill="{COLORS[role]}" fill-opacity=".7"><title>{r["id"]}: measured '
                           f'{r["measured"]:.3g} s, predicted {r["predicted"]:.3g} s</title></circle>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">measured step</text>')
    out.append(f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" '
               f'transform="rotate(-90 14 {HEIGHT / 2})">predicted step</text>')
    for i, role in enumerate(r for r in order if any(x["role"] == r for x in rows)):
        out.append(f'<circle cx="{MARGIN + 14}" cy="{MARGIN + 14 + 18 * i}" r="4" fill="{COLORS[role]}"/>')
        out.append(f'<text x="{MARGIN + 24}" y="{MARGIN + 18 + 18 * i}">{role}</text>')
    out.append("</svg>\n")
    return "\n".join(out)


def explained(row):
    """Why a row is far off, from what is known of it."""
    if row.get("why"):
        return row["why"]
    if row["memory_used"] > 0.8:
        return (f"tensors fill {row['memory_used'] * 100:.0f} % of the GPU at the peak: the caching "
                "allocator retries, which live bytes do not see")
    if row["measured"] < 0.3:
        return "a short step: the host's calls are most of it"
    if row["assumed"]:
        return "assumed: " + "; ".join(row["assumed"])
    return "not explained"


def size_of(params):
    for limit, name in ((3e8, "below 0.3B"), (1e9, "0.3B to 1B"), (4e9, "1B to 4B"), (1e10, "4B to 10B"),
                        (2e10, "10B to 20B")):
        if params < limit:
            return name
    return "20B and more"


def scale_of(gpus):
    for limit, name in ((1, "1 GPU"), (8, "2 to 8 GPUs"), (32, "9 to 32"), (128, "33 to 128")):
        if gpus <= limit:
            return name
    return "more than 128"


def grouped(rows, key, order=None):
    groups = collections.defaultdict(list)
    for r in rows:
        groups[key(r)].append(best(r))
    names = [o for o in order if o in groups] if order else sorted(groups)
    return [(n, groups[n]) for n in names]


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    shardsim, csv, folder = sys.argv[1:]
    run = subprocess.run([shardsim, "validate", csv, "--format", "json"], capture_output=True, text=True,
                         check=False)
    if run.returncode != 0:
        sys.exit(run.stderr)
    data = json.loads(run.stdout)
    rows = [r for r in data["rows"] if r["left_out"] is None]
    judged = [r for r in rows if r["role"] in ("fit", "test")]
    ways = {"shipped": "shipped constants", "calibrated": "shipped constants, its source's factor",
            "fitted": "constants fitted on the rows of role fit",
            "left_out": "its source left out of the fit", "one_step": "after one calibrated step",
            "other_rows": "after its unit's other rows"}
    out = ["# Step times against published runs\n",
           f"`shardsim validate {pathlib.Path(csv).name}`, written by `analysis/validation_page.py`. "
           f"{len(data['rows'])} rows, {len(rows)} simulated; which rows are fitted and which are kept "
           "apart says [validation/training.yaml](validation/training.yaml). Errors are predicted over "
           "measured step time less one, in percent.\n",
           "![predicted against measured](validation.svg)\n",
           "Dashed: 10 % off. Shipped constants.\n"]
    out.append("| rows | predicted with | rows | mean, % | median | bias | worst |\n|---|---|---|---|---|---|---|")
    for part, scores in data["parts"].items():
        for way, text in ways.items():
            s = scores.get(way)
            if s:
                out.append(f"| {part} | {text} | {s['count']} | {s['mean_abs_pct']:.1f} | "
                           f"{s['median_abs_pct']:.1f} | {s['bias_pct']:+.1f} | {s['worst_pct']:+.1f} |")
    out.append("\nA unit is the rows of one source on one GPU, compiled or not. After one calibrated step: one "
               "other row of the unit sets the row's factor, over all choices of that row (the bias is of "
               "errors with their signs, the rest of absolute ones); after the other rows: all of them do. "
               "Rows of fitted sources start from the prediction that left their source out, as for a "
               "source never seen; the shipped constants have seen these rows.\n")
    out.append("\n## By source\n\nRows of sources in the fit by constants that never saw the source; the "
               "others by fitted or shipped ones.\n")
    out.append(table("source", grouped(rows, lambda r: r["group"])))
    out.append("## By size\n\nRows of roles fit and test.\n")
    sizes = ["below 0.3B", "0.3B to 1B", "1B to 4B", "4B to 10B", "10B to 20B", "20B and more"]
    out.append(table("parameters", grouped(judged, lambda r: size_of(r["params"]), sizes)))
    out.append("## By scale\n")
    scales = ["1 GPU", "2 to 8 GPUs", "9 to 32", "33 to 128", "more than 128"]
    out.append(table("GPUs", grouped(judged, lambda r: scale_of(r["n_gpus"]), scales)))
    out.append("## The worst ten rows of roles fit and test\n")
    out.append("| row | model | GPUs | measured s | error, % | why |\n|---|---|---|---|---|---|")
    for r in sorted(judged, key=lambda r: -abs(best(r)))[:10]:
        out.append(f"| {r['id']} | {r['model']} | {r['n_gpus']:.0f} | {r['measured']:.3f} | "
                   f"{best(r):+.1f} | {explained(r)} |")
    out.append("\n## Contradictory rows, reported and not fitted\n")
    out.append("| row | error, % | why |\n|---|---|---|")
    for r in rows:
        if r["role"] == "contradictory":
            out.append(f"| {r['id']} | {best(r):+.1f} | {r['why']} |")
    out.append("\n## Differences of two configurations\n\nPairs of a source's rows that differ in one "
               "column; points between the measured and the predicted difference.\n")
    pairs = collections.defaultdict(list)
    for p in data["pairs"]:
        pairs[p["differs"]].append(p["points"])
    out.append(HEAD.format("differs").replace("rows", "pairs").replace("mean, %", "mean, points") +
               "".join(line(k, v) for k, v in sorted(pairs.items())))
    if data["constants"]:
        out.append("## Fitted constants\n")
        out.append("| constant | GPU | before | fitted | +- % |\n|---|---|---|---|---|")
        for c in data["constants"]:
            out.append(f"| {c['name']} | {c['gpu'] or 'all'} | {c['prior']:.4g} | {c['value']:.4g} | "
                       f"{c['standard_error_pct']:.1f} |")
    out.append("\n## Left out\n")
    out.append("| source | rows | why |\n|---|---|---|")
    reasons = collections.Counter((r["group"], r["left_out"]) for r in data["rows"]
                                  if r["left_out"] is not None)
    for (group, why), n in sorted(reasons.items()):
        out.append(f"| {group} | {n} | {why} |")
    folder = pathlib.Path(folder)
    (folder / "validation.md").write_text("\n".join(out) + "\n")
    (folder / "validation.svg").write_text(scatter(rows))


if __name__ == "__main__":
    main()
