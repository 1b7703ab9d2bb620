#!/usr/bin/env python3
"""The pages of `run` and `sweep` in a headless Chromium: check.py SHARDSIM SOURCE_DIR [SCREENSHOTS]

Each opens without an error and without a request, at 1280 and 390 pixels and in light and dark, is no wider
than the window, draws its charts, and says what `--format json` says. Exit code 77: there is no Chromium.
"""
import contextlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import browser

SHARDSIM, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SCREENSHOTS = os.path.abspath(sys.argv[3]) if len(sys.argv) > 3 else None
HOSTILE = "</script><img src=x onerror=document.title=1>"
FIVE_MB = 5_000_000
bad = 0
checks = 0


def check(what, good, more=""):
    global bad, checks
    checks += 1
    if not good:
        bad += 1
        print(f"FAILED {what} {more}")


def equal(what, got, want):
    check(what, got == want, f"\n  got  {got!r}\n  want {want!r}")


def shardsim(*args):
    r = subprocess.run([SHARDSIM, *args], capture_output=True, text=True)
    if r.returncode != 0:
        sys.exit(f"shardsim {' '.join(args)}: {r.stderr}")
    return r.stdout


def write(name, text):
    with open(name, "w") as f:
        f.write(text)
    return name


INK = """(id => { const c = document.getElementById(id), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]); return seen.size; })"""


def opens(b, page, canvases, name):
    """At both widths and in both themes; leaves the page open, wide and light."""
    size = os.path.getsize(page)
    check(f"{name}: size", size < FIVE_MB, f"{size} bytes")
    for width, height, dark in ((390, 844, False), (390, 844, True), (1280, 900, True), (1280, 900, False)):
        what = f"{name} at {width}{' dark' if dark else ''}"
        b.size(width, height, dark)
        b.open(page)
        equal(f"{what}: problems", b.problems, [])
        equal(f"{what}: drawn", b.eval("document.documentElement.dataset.ready"), "yes")
        equal(f"{what}: window", b.eval("innerWidth"), width)
        check(f"{what}: no wider than the window", b.eval("document.documentElement.scrollWidth") <= width,
              b.eval("[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
                     " && !e.closest('.scroll, pre, .chips')).map(e => e.tagName + '.' + e.className + '#' + e.id)"))
        for c in canvases:
            check(f"{what}: {c} is drawn", b.eval(f"{INK}('{c}')") > 4)
        if SCREENSHOTS:
            b.screenshot(f"{SCREENSHOTS}/{name}-{width}{'-dark' if dark else ''}.png", whole=True)


def run_page(b, scenario, name):
    report = json.loads(shardsim("run", scenario, "--format", "json", "--html", name + ".html"))
    opens(b, name + ".html", ["lanes", "memory"], name)
    equal(f"{name}: name", b.eval("document.querySelector('h1').textContent"), report["name"])
    memory = report["memory"]
    peak = b.eval("packed.memory.total.reduce((a, b) => Math.max(a, b), 0)")
    if memory["peak_reserved_bytes"] is None:
        equal(f"{name}: peak", peak, memory["peak_allocated_bytes"])
    else:  # blocks are larger than what is asked for, by little
        check(f"{name}: peak", 0.97 * memory["peak_allocated_bytes"] < peak <= memory["peak_allocated_bytes"], peak)
    if memory["peak_reserved_bytes"] is not None and not memory["oom"]:
        equal(f"{name}: reserved", b.eval("packed.memory.reserved.reduce((a, b) => Math.max(a, b), 0)"), memory["peak_reserved_bytes"])
    equal(f"{name}: out of memory", b.eval("!document.getElementById('verdict').hidden"), memory["oom"])
    if report["step_time_s"] is not None:
        equal(f"{name}: step time", b.eval("document.querySelector('#figures .value').textContent"), b.eval(f"seconds({report['step_time_s']})"))
        exposed = b.eval("packed.exposed[packed.exposed.length - 1].map(e => [e.length, e.on])")
        equal(f"{name}: exposed intervals", [on for _, on in exposed], [e["waiting_on"] for e in report["exposed"]])
        check(f"{name}: exposed time", abs(sum(n for n, _ in exposed) - report["exposed_comm_s"] * 1e9) <= len(exposed) + 1)
    return report


def moves_about(b):
    """Zoom, drag, keys, tooltip and theme, on the page that is open."""
    b.eval("document.getElementById('lanes').scrollIntoView({block: 'center'})")
    b.settle()
    x, y, w = b.eval("(r => [r.left, r.top, r.width])(document.getElementById('lanes').getBoundingClientRect())")
    view = lambda: b.eval("view")
    step = view()
    middle = b.eval("laneTop(0) + LABEL + 10")
    b.click(x + w / 2, y + middle)
    check("a click keeps a launch", "duration" in b.eval("document.getElementById('picked').textContent"))
    check("the tooltip says its stream", "compute" in b.eval("tip.textContent") and not b.eval("tip.hidden"))
    b.eval("document.getElementById('lanes').focus()")
    b.mouse("mouseWheel", x + w / 2, y + middle, deltaX=0, deltaY=-400)
    b.settle()
    near = view()
    check("the wheel zooms", near[1] - near[0] < 0.6 * (step[1] - step[0]), f"{step} {near}")
    check("about the pointer", abs((near[0] + near[1]) / 2 - (step[0] + step[1]) / 2) < 0.02 * (step[1] - step[0]))
    b.mouse("mouseMoved", x + w / 2, y + middle)
    b.mouse("mousePressed", x + w / 2, y + middle, button="left", buttons=1, clickCount=1)
    b.mouse("mouseMoved", x + w / 4, y + middle, button="left", buttons=1)
    b.mouse("mouseReleased", x + w / 4, y + middle, button="left", clickCount=1)
    b.settle()
    check("a drag moves a quarter", abs((view()[0] - near[0]) / (near[1] - near[0]) - 0.25) < 0.02)
    b.key("0")
    equal("0 shows the step", view(), step)
    b.key("+")
    check("+ zooms", view()[1] - view()[0] < step[1] - step[0])
    b.key("]")
    check("] goes to the next", "duration" in b.eval("document.getElementById('picked').textContent"))
    b.key("0")
    apart = lambda d: [{"x": x + w / 2 - d, "y": y + middle, "id": 1}, {"x": x + w / 2 + d, "y": y + middle, "id": 2}]
    b.call("Emulation.setTouchEmulationEnabled", enabled=True, maxTouchPoints=2)
    b.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=apart(40))
    for d in (60, 90, 120):
        b.call("Input.dispatchTouchEvent", type="touchMove", touchPoints=apart(d))
    b.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    b.call("Emulation.setTouchEmulationEnabled", enabled=False)
    b.settle()
    check("two fingers zoom", 0.2 < (view()[1] - view()[0]) / (step[1] - step[0]) < 0.5, view())
    before = b.eval("getComputedStyle(document.body).backgroundColor")
    b.eval("document.getElementById('theme').click()")
    b.settle()
    check("the theme changes", b.eval("getComputedStyle(document.body).backgroundColor") != before)
    b.eval("document.querySelector('#groups th button').click()")
    equal("a sorted column says so", b.eval("document.querySelector('#groups th').getAttribute('aria-sort')"), "descending")
    equal("problems of moving about", b.problems, [])


def sweep_page(b, study, base_folder):
    answer = json.loads(shardsim("sweep", study, "--store", "s.db", "--format", "json", "--html", "sweep.html"))
    shown = shardsim("sweep", "--show", "s.db", "--html", "shown.html")
    check("a store alone gives the page of its study", open("sweep.html").read() == open("shown.html").read(), shown[:200])
    opens(b, "sweep.html", ["scatter"], "sweep")
    equal("sweep: front", b.eval("front.map(p => points.number[p])"), answer["pareto"])
    equal("sweep: best", b.eval("[...document.querySelectorAll('#best tbody tr td:first-child')].map(e => Number(e.textContent))"),
          answer["best"][:25])
    failed = [p for p in answer["points"] if p["error"]]
    equal("sweep: errors", b.eval("[...document.querySelectorAll('#errors tbody tr td:first-child')].reduce((n, e) => n + Number(e.textContent), 0)"), len(failed))
    equal("sweep: title", b.eval("document.title"), "s " + HOSTILE + " - shardsim sweep")
    equal("sweep: no element of a label", b.eval("document.querySelectorAll('img').length"), 0)
    # A point's scenario is the point: played by itself it has the point's figures, to the picosecond.
    for point in answer["points"]:
        n = point["point"]
        b.open("sweep.html", f"#point={n}")
        equal(f"point {n}: heading", b.eval("document.getElementById('h-point').textContent"), f"Point {n}")
        text = b.eval("document.getElementById('scenario').textContent")
        equal(f"point {n}: link", b.eval("decodeURIComponent(document.querySelector('#point a[download]').href.split(',').slice(1).join(','))"), text)
        path = write(os.path.join(base_folder, f"point-{n}.yaml"), text)
        if point["error"]:
            r = subprocess.run([SHARDSIM, "run", path], capture_output=True, text=True)
            equal(f"point {n}: refused alike", r.stderr.split("error: ")[1].split("\n")[0], point["error"].split("error: ")[1])
            continue
        report = json.loads(shardsim("run", path, "--format", "json"))
        equal(f"point {n}: step time", round(report["step_time_s"] * 1e12), round(point["step_time_s"] * 1e12))
        equal(f"point {n}: peak", report["memory"]["peak_allocated_bytes"], point["peak_bytes"])
    # Filters, hover and click.
    b.open("sweep.html")
    every = b.eval("shown.length")
    b.eval("[...document.querySelectorAll('#filters fieldset')][1].querySelector('button').click()")
    check("a filter leaves one value", 0 < b.eval("shown.length") < every and b.eval("new Set(shown.map(p => points.at[0][p])).size") == 1)
    b.eval("[...document.querySelectorAll('#filters fieldset')][1].querySelector('button').click()")
    equal("and comes off", b.eval("shown.length"), every)
    b.eval("document.getElementById('scatter').scrollIntoView({block: 'center'})")
    b.settle()
    x, y = b.eval("(r => [r.left, r.top])(document.getElementById('scatter').getBoundingClientRect())")
    px, py = b.eval("[plot.sx.place(plot.x.of(points.row[front[0]])), plot.sy.place(plot.y.of(points.row[front[0]]))]")
    b.mouse("mouseMoved", x + px, y + py)
    check("the tooltip names the point", b.eval("tip.textContent").startswith(f"Point {answer['pareto'][0]}"))
    b.click(x + px, y + py)
    equal("a click opens it", b.eval("location.hash"), f"#point={answer['pareto'][0]}")
    b.eval("document.querySelector('#point button').click()")
    for select, key in (("x", "tokens-per-s"), ("y", "mfu"), ("objective", "peak-memory"), ("by", "1")):
        b.eval(f"(s => {{ s.value = '{key}'; s.dispatchEvent(new Event('change')); }})(document.getElementById('{select}'))")
    for log in ("x-log", "y-log", "front-only"):
        b.eval(f"document.getElementById('{log}').click()")
    b.settle()
    check("other axes are drawn", b.eval(f"{INK}('scatter')") > 4)
    equal("problems of the sweep", b.problems, [])
    # A store of which nothing has been played.
    shutil.copy("s.db", "empty.db")
    with contextlib.closing(sqlite3.connect("empty.db")) as db, db:
        db.execute("DELETE FROM rows")
    shardsim("sweep", "--show", "empty.db", "--html", "empty.html")
    b.open("empty.html", "#point=0")
    equal("empty store: problems", b.problems, [])
    check("empty store: says so", "12 still to be played" in b.eval("document.body.textContent"))


SCENARIO = """shardsim: 1
name: "s {hostile}"
model: {{model_type: stack, hidden_size: 256, blocks: [[[256, 256]], [[256, 256], [256, 256]]]}}
cluster: {{gpu: h100-sxm5-80gb, gpus_per_node: 8, links: {{intra: {{alpha: 5 us, bus: 354 GB/s}}}}}}
training: {{strategy: fsdp2, micro_batch: 256, wrap: {{policy: per_block}}}}
cost: {{model: flat}}
"""
STUDY = """shardsim_study: 1
name: "s {hostile}"
question: "Are labels like {hostile} harmless?"
base: base/base.yaml
axes:
  training.micro_batch: [64, 256, none]
  "{hostile}":
    choices:
      "{hostile} 1": ~
      root: {{training.wrap: {{policy: root_only}}}}
      ddp: {{training.strategy: ddp, training.wrap: ~}}
      new keys: {{options.max_steps: 3, training.precision: {{storage: fp32, compute: bf16, reduce: fp32}}}}
"""
MANY = """shardsim_study: 1
name: many
axes:
  training.micro_batch: {from: 1, to: 100}
  cluster.links.intra.bus: [BUSES]
scenario:
  shardsim: 1
  model: {model_type: stack, hidden_size: 64, blocks: [[[64, 64]]]}
  cluster: {gpu: h100-sxm5-80gb, gpus_per_node: 8, links: {intra: {alpha: 5 us, bus: 354 GB/s}}}
  training: {strategy: fsdp2, micro_batch: 256, wrap: {policy: per_block}}
  cost: {model: flat}
"""
LONG = """shardsim: 1
name: long
model: {preset: llama-3.1-405b}
cluster: {preset: dgx-h100, nodes: 64}
training:
  seq_len: 4096
  micro_batch: 1
  grad_accum: 24
  strategy: fsdp2
  precision: {storage: fp32, compute: bf16, reduce: fp32}
  optimizer: {name: adamw, implementation: fused}
"""


def main():
    program = browser.find()
    if program is None:
        print("no Chromium is installed: the pages are not opened")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.mkdir("base")
        write("base/base.yaml", SCENARIO.format(hostile=HOSTILE))
        write("study.yaml", STUDY.format(hostile=HOSTILE))
        b = browser.Browser(program)
        try:
            scenarios = os.path.join(SOURCE, "scenarios")
            run_page(b, f"{scenarios}/llama3-8b-fsdp2-h100x8.yaml", "llama3-8b")
            moves_about(b)
            run_page(b, f"{scenarios}/llama3-8b-blocks-h100x8.yaml", "blocks")
            run_page(b, f"{scenarios}/llama3-8b-hsdp-h100x64.yaml", "hsdp")
            run_page(b, f"{scenarios}/small/kept-logits-24gib.yaml", "out-of-memory")
            run_page(b, f"{scenarios}/small/fused-loss-one-gpu.yaml", "one-gpu")
            run_page(b, f"{scenarios}/small/zero3-stack.yaml", "zero3")
            run_page(b, f"{scenarios}/small/ddp.yaml", "ddp")
            run_page(b, "base/base.yaml", "hostile")
            equal("hostile: no element of a name", b.eval("document.querySelectorAll('img').length"), 0)
            equal("hostile: title", b.eval("document.title"), "s " + HOSTILE + " - shardsim run")
            run_page(b, write("long.yaml", LONG), "long")
            check("long: launches", b.eval("packed.streams.reduce((n, s) => n + s.n, 0)") >= 150_000)
            sweep_page(b, "study.yaml", "base")
            shardsim("sweep", write("many.yaml", MANY.replace("BUSES", ", ".join(f"{n} GB/s" for n in range(101, 201)))), "--store", "many.db", "--html", "many.html", "-o", "many.txt")
            opens(b, "many.html", ["scatter"], "many")
            equal("many: points", b.eval("shown.length"), 10_000)
        finally:
            b.close()
    print(f"pages: {checks} checks, {bad} failed")
    return 1 if bad else 0


sys.exit(main())
