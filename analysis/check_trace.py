#!/usr/bin/env python3
"""Checks a Chrome trace of one rank against the rules that its readers depend on.

    check_trace.py rank0.pt.trace.json [...]

Prints what is wrong, one line each, and exits with 1 if anything is. Standard library only. The
rules are those listed in sim/report/chrome_trace.h: HolisticTraceAnalysis's and Perfetto's.
"""
import collections
import gzip
import json
import re
import sys

LAUNCHES = {"cudaLaunchKernel", "cudaLaunchKernelExC", "cudaMemcpyAsync", "cudaMemsetAsync"}
DEVICE = {"kernel", "gpu_memcpy", "gpu_memset"}
COLLECTIVE_ARGS = [
    "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "In split size",
    "Out split size", "Process Group Name", "Process Group Description", "Process Group Ranks",
]


def nanoseconds(us):
    return round(us * 1000)


def problems(text):
    trace = json.loads(text)
    for key in ["schemaVersion", "deviceProperties", "distributedInfo", "displayTimeUnit",
                "traceEvents", "traceName"]:
        if key not in trace:
            yield f"no key {key}"
            return
    if not re.search(r'"rank":\s+(\d+)', text):
        yield 'no space after "rank":, so HTA does not find the rank'
    if text.index('"distributedInfo"') > text.index('"traceEvents"'):
        yield "distributedInfo comes after traceEvents"

    events = trace["traceEvents"]
    launches, kernels = collections.Counter(), collections.Counter()
    arrows = {"s": collections.Counter(), "f": collections.Counter()}
    steps, host_end = [], 0
    rows = collections.defaultdict(list)
    for number, e in enumerate(events):
        ph, cat, name = e.get("ph"), e.get("cat", ""), e.get("name", "")
        where = f"event {number} ({name})"
        if ph not in {"M", "X", "s", "f", "C"}:
            yield f"{where}: unknown ph {ph}"
        if ph in arrows:
            arrows[ph][e["id"]] += 1
            if ph == "f" and e.get("bp") != "e":
                yield f"{where}: an arrow ends with bp e"
        if ph == "C" and not all(isinstance(v, (int, float)) for v in e["args"].values()):
            yield f"{where}: counters are numbers"
        if ph != "X":
            continue
        if not cat or "dur" not in e:
            yield f"{where}: a slice has cat and dur"
            continue
        start = nanoseconds(e["ts"])
        end = start + nanoseconds(e["dur"])
        if end < start or start < 0:
            yield f"{where}: negative time"
        rows[e["pid"], e["tid"]].append((start, -end, number, name))
        if cat == "cuda_runtime":
            host_end = max(host_end, start)
            if name in LAUNCHES:
                launches[e["args"]["correlation"]] += 1
                if number == 0:
                    yield "the first event is a launch"
        if name.startswith("ProfilerStep#"):
            steps.append((start, name))
        if cat not in DEVICE:
            continue
        kernels[e["args"]["correlation"]] += 1
        if e["tid"] < 1 or e["tid"] != e["args"]["stream"]:
            yield f"{where}: streams are numbered from 1, and tid is the stream"
        nccl = name.startswith("nccl")
        if cat == "kernel" and nccl:
            for key in COLLECTIVE_ARGS:
                if key not in e["args"]:
                    yield f"{where}: a collective has {key}"
        if cat == "kernel" and not nccl and re.search(r"Sync|dma|Memcpy|Memset", name):
            yield f"{where}: HTA would not count this name as compute"
        if cat == "gpu_memcpy" and not name.startswith("Memcpy"):
            yield f"{where}: a copy is named Memcpy"
        if cat == "gpu_memset" and not name.startswith("Memset"):
            yield f"{where}: a memset is named Memset"

    for correlation in kernels:
        if kernels[correlation] != 1 or launches[correlation] != 1:
            yield (f"correlation {correlation}: {kernels[correlation]} device events, "
                   f"{launches[correlation]} launches")
        if arrows["s"][correlation] != 1 or arrows["f"][correlation] != 1:
            yield f"correlation {correlation}: no arrow of its own"
    for correlation in launches:
        if correlation not in kernels:
            yield f"correlation {correlation}: a launch without its device event"

    if [name for _, name in steps] != [f"ProfilerStep#{i}" for i in range(len(steps))]:
        yield "ProfilerStep# annotations do not count from 0"
    if len(steps) < 2:
        yield "fewer than two ProfilerStep# annotations"
    elif steps[-1][0] <= host_end:
        yield "the last ProfilerStep# begins before the last host call, which HTA then drops"

    for (pid, tid), slices in rows.items():
        open_ends = []
        for start, negative_end, number, name in sorted(slices):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            if open_ends and -negative_end > open_ends[-1]:
                yield f"event {number} ({name}): crosses the end of a slice of pid {pid} tid {tid}"
            open_ends.append(-negative_end)


def main(paths):
    if not paths:
        sys.exit(__doc__)
    wrong = False
    for path in paths:
        opener = gzip.open if path.endswith(".gz") else open
        with opener(path, "rt", encoding="utf-8") as file:
            for problem in problems(file.read()):
                wrong = True
                print(f"{path}: {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
