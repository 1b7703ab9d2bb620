#!/usr/bin/env bash
# Plays users' cases: tests/cases/check.sh SHARDSIM
# Each line is a case: what the case says is right, and what shardsim gives. Expected values are the
# cases' (README.md here), never taken from shardsim. Exits 1 when a case differs.
set -euo pipefail
if [[ $# -ne 1 ]]; then sed -n '2,4s/^# \{0,1\}//p' "$0"; exit 1; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - "$(realpath "$1")" "$(cd "$(dirname "$0")" && pwd)" "$work" <<'PYTHON'
import json
import pathlib
import subprocess
import sys

program, folder, work = sys.argv[1:]
bad = checks = 0


def play(command, scenario, *changes, more=()):
    """What `shardsim command` says of a scenario here in which each (old, new) text is replaced."""
    text = pathlib.Path(folder, scenario + ".yaml").read_text()
    for old, new in changes:
        assert old in text, (scenario, old)
        text = text.replace(old, new)
    path = pathlib.Path(work, "case.yaml")
    path.write_text(text)
    return subprocess.run([program, command, str(path), "--format", "json", *more],
                          capture_output=True, text=True)


def result(command, scenario, *changes):
    done = play(command, scenario, *changes)
    if done.returncode != 0:
        sys.exit(f"{scenario} {changes}: {command} exits {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def launches(scenario, *changes):
    """(start us, end us, name) of what the device runs, in the order of start."""
    traced = pathlib.Path(work, "trace.json")
    play("run", scenario, *changes, more=("--trace", str(traced))).check_returncode()
    return sorted((e["ts"], e["ts"] + e["dur"], e["name"])
                  for e in json.loads(traced.read_text())["traceEvents"]
                  if e.get("ph") == "X" and e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"))


def paper(*arguments):
    """The ledger without a scenario, by scheme."""
    done = subprocess.run([program, "ledger", *arguments, "--format", "json"],
                          capture_output=True, text=True, check=True)
    return {s["scheme"]: s for s in json.loads(done.stdout)["schemes"]}


def ledger(*of): return result("ledger", *of)
def run(*of): return result("run", *of)
def explain(*of): return result("explain", *of)


def check(case, what, expected, got, tolerance=0.0):
    """Equal, or within a relative tolerance."""
    global bad, checks
    checks += 1
    if tolerance:
        right = abs(got - expected) <= tolerance * abs(expected)
    else:
        right = got == expected
    bad += not right
    print(f"{case}  {'same ' if right else 'OTHER'}  {what}: expected {expected}, got {got}")


def holds(case, what, got, right):
    global bad, checks
    checks += 1
    bad += not right
    print(f"{case}  {'same ' if right else 'OTHER'}  {what}: got {got}")


def counts(report, group):
    """(all-gathers, reduce-scatters) of a group in a step."""
    return tuple(sum(c["count"] for c in report["collectives"]
                     if c["group"] == group and c["kind"] == kind)
                 for kind in ("all_gather", "reduce_scatter"))


def group(report, name):
    return next(g for g in report["groups"] if g["name"] == name)


# Memory of FSDP1's limiter.
limited, unlimited = (run("limiter", ("limit_all_gathers: true", f"limit_all_gathers: {on}"))
                      for on in ("true", "false"))
active = [r["memory"]["peak_active_bytes"] for r in (limited, unlimited)]
def gathered(report):
    """Most all-gather outputs of the first forward that the device has not yet done with.

    The 32 MiB of the products' workspace are taken off; a row of activations stays, 0.01 of an output.
    """
    mark = next(m for m in report["memory"]["marks"] if m["mark"].endswith("after_forward"))
    return round((mark["peak_active_bytes"] - mark["allocated_bytes"] - (32 << 20)) / (8192 * 8192 * 2), 2)


holds("UC002", "all-gather outputs in flight with the limiter, 2", gathered(limited), abs(gathered(limited) - 2) <= 0.02)
holds("UC002", "without it more", gathered(unlimited), gathered(unlimited) > 2.5)
holds("UC003", "peak active without limiter over with, at least 3", round(active[1] / active[0], 2),
      active[1] >= 3 * active[0])
ratio = limited["step_time_s"] / unlimited["step_time_s"]
holds("UC003", "step time changes by less than 5 %, with over without", round(ratio, 4),
      abs(ratio - 1) < 0.05)

# Saving.
for kind, verdict in (("full", True), ("sharded", False), ("full_offload_rank0", False)):
    report = run("full_state_dict", ("state_dict: full", f"state_dict: {kind}"))
    check("UC023", f"out of memory with state_dict {kind}", verdict, report["memory"]["oom"])
peaks = {}
for kind, verdict in (("full", True), ("sharded", False), ("none", False)):
    report = run("full_state_dict", ("strategy: fsdp1\n", "strategy: fsdp2\n"),
                 ("fsdp1: {use_orig_params: true, state_dict: full}", f"fsdp2: {{state_dict: {kind}}}"))
    check("UC023", f"FSDP2, out of memory with state_dict {kind}", verdict, report["memory"]["oom"])
    peaks[kind] = report["memory"]["peak_allocated_bytes"]
check("UC023", "bytes that FSDP2's sharded save adds", 0, peaks["sharded"] - peaks["none"])
check("UC023", "bytes of the whole model in bf16", 137.95e9, report["model"]["params"] * 2, 0.01)

# State of a rank.
report = explain("qwen32b")
check("UC025", "state of a GPU, 16 B a parameter", 32.8e9, sum(report["resident_bytes"].values()), 0.01)
report = explain("qwen32b", ("storage: fp32, compute: bf16, reduce: fp32", "storage: bf16"))
check("UC025", "state of a GPU, all bf16", 16.4e9, sum(report["resident_bytes"].values()), 0.01)
check("UC026", "out of memory on 2 GPUs", True, run("llama13b")["memory"]["oom"])
check("UC026", "out of memory on 4 GPUs", False,
      run("llama13b", ("gpus_per_node: 2", "gpus_per_node: 4"))["memory"]["oom"])
report = explain("llama7b")
of = report["resident_bytes"]
check("UC027", "B a parameter, weights and moments in fp32", 12.0,
      4 * (of["parameters"] + of["optimizer_state"]) / report["model"]["params"], 1e-6)
check("UC027", "B a parameter with gradients", 16.0, 4 * sum(of.values()) / report["model"]["params"], 1e-6)
# The allocator rounds each of the 26 tensors up to 512 B.
for sync, held in (("last", 52.0e9), ("each", 3.25e9)):
    marks = {m["mark"]: m["allocated_bytes"] for m in
             run("deferred_sync", ("sync: last", f"sync: {sync}"))["memory"]["marks"]}
    check("UC030", f"bytes of gradients between passes, sync {sync}", held,
          marks["step0.0.after_backward"] - marks["after_init"], 1e-5)

# Groups.
report = explain("root_tables")
check("UC032", "root's reduce-scatter input", 10171187200,
      max(g["reduce_scatter_bytes"] for g in report["groups"]))
report = explain("root_tables", ('"model.norm"]', '"model.norm", "model.embed_tokens", "lm_head"]'))
check("UC032", "the same, tables apart", 5085593600,
      max(g["reduce_scatter_bytes"] for g in report["groups"]))
for strategy, times in (("full_shard", 48.0), ("shard_grad_op", 32.0)):
    report = explain("olmo", ("full_shard", strategy))
    moved = sum(c["bytes_total"] for c in report["collectives_per_step"])
    check("UC040", f"volume of {strategy} over an all-reduce's", times,
          moved / (2 * 4 * report["model"]["params"]))
    counted = {c["kind"]: c["count"] for c in report["collectives_per_step"]}
    check("UC040", f"reduce-scatters of {strategy}, 2 units", 2 * 32, counted["reduce_scatter"])
# DDP, one synchronization a batch.
report = explain("olmo", ("fsdp1\n", "ddp\n"),
                 ("  fsdp1: {sharding_strategy: full_shard}", "  ddp: {no_sync: true}"),
                 ("{max_steps: 1}", "{max_steps: 2}"))
moved = sum(c["bytes_total"] for c in report["collectives_per_step"] if c["bytes_total"] > 1000)
check("UC040", "volume of DDP over an all-reduce's", 1.0, moved / (4 * report["model"]["params"]))
report = run("llama7b")
resolved = {g["name"]: g["reshard"] for g in report["groups"]}
root = next(n for n in resolved if "layers" not in n)
check("UC042", "reshard_after_forward of the root", "false", resolved[root])
check("UC042", "of a block", "true", resolved["model.layers.5"])
check("UC042", "all-gathers of the root", 1, counts(report, root)[0])
check("UC042", "all-gathers of a block", 2, counts(report, "model.layers.5")[0])
apart = '[["model.embed_tokens"], ["model.norm", "lm_head"], '
done = play("explain", "tied", ('[["model.embed_tokens", "model.norm", "lm_head"], ', apart))
holds("UC043", "tied weight in two groups is rejected, both named", done.returncode,
      done.returncode == 1 and "lm_head.weight" in done.stderr and "embed_tokens.weight" in done.stderr)
layers = 2 * (1024 * 2048 * 2 + 1024 * 1024 * 2 + 3 * 1024 * 3072 + 2 * 1024 + 2 * 128)
check("UC043", "elements with the tied table counted once", 151936 * 1024 + 1024 + layers,
      sum(g["numel"] for g in explain("tied")["groups"]))

# Accounts.
states = [ledger("state", ("nodes: 1}", f"nodes: {n}}}"))["resident"]["simulated_bytes"] for n in (1, 16)]
check("UC015", "GiB of state that 128 ranks save over 8, 16 B a parameter", 14.0, (states[0] - states[1]) / 2**30, 0.005)
check("UC016", "MB after backward, sharded parameters and gradients over 2 ranks", 5478,
      ledger("after_backward")["resident"]["simulated_bytes"] / 1e6, 0.02)
full = [paper("--params", "8030261248", "--ranks", "64", "--strategy", "full_shard", *of)["full_shard"]["communication_bytes"]
        for of in ((), ("--gather-dtype", "fp8"), ("--reduce-dtype", "fp32"), ("--gather-dtype", "fp8", "--reduce-dtype", "fp32"))]
check("UC084", "volume with float8 all-gathers, bf16 reductions", 0.667, round(full[1] / full[0], 3))
check("UC084", "the same with fp32 reductions", 0.75, round(full[3] / full[2], 3))
for params, mib in ((124475904, 1068), (1557686400, 13370)):
    of = paper("--params", str(params), "--ranks", "4", "--optimizer-bytes", "12")
    check("UC152", f"MiB that ZeRO-1 saves of {params} parameters on 4 ranks", mib,
          (of["ddp"]["resident_bytes"] - of["zero1"]["resident_bytes"]) / 2**20, 0.005)

# Counts of a step of K passes.
for k in (1, 4):
    passes = ("grad_accum: 4", f"grad_accum: {k}")
    kept = ("reshard_after_forward: true, root_reshard_after_forward: true", "reshard_after_forward: false")
    last = ("reshard_after_forward: false", "reshard_after_forward: false, requires_gradient_sync: last, "
            "reshard_after_backward: last")
    for case in ("UC046", "UC094"):
        name = "K" if case == "UC046" else "m"
        of = counts(run("accumulation", passes), "layers.1")
        check(case, f"{name}={k}, reshard true: gathers, scatters", (2 * k, k), of)
        of = counts(run("accumulation", passes, kept), "layers.1")
        check(case, f"{name}={k}, reshard false", (k, k), of)
        of = counts(run("accumulation", passes, kept, last), "layers.1")
        check(case, f"{name}={k}, kept and not synchronised until the last", (1, 1), of)

# Overlap.
of = {p: run("prefetch", ("backward_prefetch: pre", f"backward_prefetch: {p}")) for p in ("pre", "post", "none")}
seconds = [of[p]["step_time_s"] for p in of]
holds("UC056", "step time of pre <= post <= none", seconds, seconds == sorted(seconds))
peaks = [of[p]["memory"]["peak_allocated_bytes"] for p in of]
holds("UC056", "memory of pre >= post >= none", peaks, peaks == sorted(peaks, reverse=True))
check("UC056", "bytes of memory that pre adds", 2 * 16384 * 4096 * 2, peaks[0] - peaks[1])
report = run("implicit")
gather = next(c for c in report["collectives"] if c["group"] == "layers.0" and c["kind"] == "all_gather")
holds("UC066", "exposed of group 0 at least its first all-gather", (gather["exposed_s"], gather["time_s"] / gather["count"]),
      gather["exposed_s"] >= gather["time_s"] / gather["count"] * (1 - 1e-9))
of = report["memory"]["by_category"]
held = (of["unsharded_parameters"] + of["all_gather_buffers"]) / (8192 * 8192 * 2)
holds("UC066", "gathered groups at the peak, at most 3", held, held <= 3)

peaks = [next(m["peak_allocated_bytes"] for m in run("implicit", (
    "strategy: fsdp2", f"strategy: fsdp2\n  fsdp2: {{prefetch: {{forward: {depth}}}}}"))["memory"]["marks"]
    if m["mark"] == "step0.0.after_forward") for depth in (0, 1, 2, 3)]
check("UC066", "groups that explicit prefetch of 1, 2, 3 adds", [1, 2, 3],
      [round((p - peaks[0]) / (8192 * 8192 * 2), 1) for p in peaks[1:]])
for k, reduced_each, seconds in ((2, "last", 33.0), (4, "last", 54.6), (8, "last", 97.8), (4, "each", 88.8)):
    report = run("deferred_all_reduce", ("grad_accum: 1", f"grad_accum: {k}"), ("all_reduce: last", f"all_reduce: {reduced_each}"))
    check("UC067", f"seconds of {k} passes, all-reduce {reduced_each}", seconds, report["step_time_s"], 0.02)

# Reduce-scatters that outlast a block's backward: formulas of the case.
L = 6
for k in (1, 2, 3, 6):
    of = launches("reduce_inputs", ("max_input_buffers: 1", f"max_input_buffers: {k}"))
    scatters = [e for e in of if "ReduceScatter" in e[2]][:L]
    products = [e for e in of if e[2].startswith("nvjet")][L:3 * L]  # of the first backward
    copied_in = [e for e in of if e[2].startswith("Memcpy HtoD") and products[1][1] <= e[0]][L - 1]
    t_rs, t_bwd = scatters[0][1] - scatters[0][0], 2 * (products[0][1] - products[0][0])
    check("UC060", f"s that compute stalls, k={k}", round(max(0, (L - k) * t_rs - (L - 1) * t_bwd) / 1e6, 3),
          round((copied_in[0] - products[0][0] - L * t_bwd) / 1e6, 3))
    check("UC060", f"s to the end of the last reduce-scatter, k={k}", round((t_bwd + L * t_rs) / 1e6, 3),
          round((scatters[-1][1] - products[0][0]) / 1e6, 3))
fast = ("bus_gbps: 0.02", "bus_gbps: 1")
check("UC060", "compute that stalls with reduce-scatters faster than a block's backward", 0,
      sum(e["duration_s"] for e in run("reduce_inputs", fast)["exposed"]
          if "reduce_scatter" in e["waiting_on"] and e["cause"] != "end_of_step"))
held = [run("reduce_inputs", ("max_input_buffers: 1", f"max_input_buffers: {k}"))["memory"]["by_category"]["reduce_scatter_buffers"]
        for k in (1, 2, 3)]
check("UC060", "buffers of a group that k = 2, 3 add", [1, 1], [(b - a) / (4096 * 4096 * 2) for a, b in zip(held, held[1:])])

# HSDP.
def outputs(layers):
    """Bytes that HSDP's peak has over that of its shard group alone."""
    few = (", *b" * 31 + "]", ", *b" * (layers - 1) + "]")
    flat = ("nodes: 2", "nodes: 1"), ("replicate: 2", "replicate: 1")
    return (run("reduce_outputs", few)["memory"]["peak_allocated_bytes"] -
            run("reduce_outputs", few, *flat)["memory"]["peak_allocated_bytes"])


check("UC068", "bytes that HSDP adds to each layer", 34e6, (outputs(32) - outputs(16)) / 16, 0.05)
check("UC068", "bytes that it adds to 32 layers", 1.03e9, outputs(32), 0.05)


def bisect(wanted, efficiency):
    """The bandwidth in GB/s at which an efficiency that grows with it is the wanted one."""
    low, high = 0.5, 500.0
    for _ in range(16):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if efficiency(middle) < wanted else (low, middle)
    return (low * high) ** 0.5


def llama2b(nodes, strategy, bus=10.0):
    mesh = f"replicate: {nodes}, shard: 4" if strategy == "hybrid_shard" else f"replicate: 1, shard: {4 * nodes}"
    return run("llama2b", ("nodes: 4", f"nodes: {nodes}"), ("replicate: 1, shard: 16", mesh),
               ("full_shard", strategy), ("bus: 10 GB/s", f"bus: {bus:.4f} GB/s"))["step_time_s"]


one = llama2b(1, "full_shard")
bus = bisect(0.638, lambda b: one / llama2b(4, "full_shard", b))
for nodes, efficiency in ((2, 0.940), (4, 0.857)):
    got = one / llama2b(nodes, "hybrid_shard", bus)
    holds("UC070", f"efficiency of HSDP on {nodes} nodes at the {bus:.2f} GB/s that FULL_SHARD shows, {efficiency} +- 0.05",
          round(got, 3), abs(got - efficiency) <= 0.05)
got = llama2b(4, "full_shard", bus) / llama2b(4, "hybrid_shard", bus)
check("UC070", "speed of HSDP over FULL_SHARD on 4 nodes", 1.344, got, 0.05)
for k in (2, 4):
    for reduced_each, passes in (("each", float(k)), ("last", k * 0.75)):
        report = json.loads(play(
            "run", "deferred_all_reduce", ("grad_accum: 1", f"grad_accum: {k}"), ("all_reduce: last", f"all_reduce: {reduced_each}"),
            ("0.005886", "10000"), ("300 GB/s", "10000 GB/s"), more=("--uneven", "1,0.5;0.5,1")).stdout)
        one = run("deferred_all_reduce", ("0.005886", "10000"), ("300 GB/s", "10000 GB/s"))["step_time_s"]
        check("UC073", f"steps of long passes that {k} by turns long and half as long take, all-reduce {reduced_each}",
              passes, round(report["uneven_ranks"]["step_time_s"] / one, 3))
for mesh, crosses in (("{replicate: 1, shard: 24}", True), ("{replicate: 2, shard: 12}", False)):
    of = explain("crossing", ("{replicate: 1, shard: 24}", mesh))["collectives_per_step"]
    check("UC076", f"shard group of {mesh} crosses a node", crosses,
          any(c["crosses_nodes"] for c in of if c["communicator"] == "shard"))

# Networks.
def h200(nodes, bus):
    return run("h200_7b", ("nodes: 2", f"nodes: {nodes}"), ("bus: 50 GB/s", f"bus: {bus:.4f} GB/s"))["step_time_s"]


one = run("h200_7b", ("nodes: 2", "nodes: 1"), ("gpus_per_node: 4", "gpus_per_node: 1"),
          ("micro_batch: 4", "micro_batch: 2"), ("grad_accum: 2", "grad_accum: 4"))["step_time_s"]
bus = bisect(0.53, lambda b: one / h200(2, b))
got = one / h200(8, bus)
holds("UC103", f"efficiency of 32 GPUs at the {bus:.2f} GB/s that 8 show, 0.47 +- 0.06", round(got, 3), abs(got - 0.47) <= 0.06)
for gpus, tokens_per_s, rate in ((2, 2.54, 18.5), (4, 3.34, 37.5)):
    of = launches("inference", ("gpus_per_node: 2", f"gpus_per_node: {gpus}"))
    gathers = [e for e in of if "AllGather" in e[2]][-33:]  # of the forward after the step
    seconds = sum(e - b for b, e, _ in gathers) / 1e6  # at 1 GB/s
    check("UC104", f"GB/s that {gpus} GPUs receive, from the time of a token on one", rate,
          seconds / (1 / tokens_per_s - 1 / 33.42), 0.05)
report = explain("bandwidth", ("nodes: 3", "nodes: 2"))
ranks, nodes, passes = 16, 2, 3
whole = 2 * report["model"]["params"]
for what, key, n in (("through a node's boundary", "node_boundary_bytes", ranks),
                     ("the same at least", "node_boundary_bytes_least", nodes)):
    check("UC108", f"bytes a step {what}", passes * whole * (n - 1) // n,
          sum(c[key] for c in report["collectives_per_step"]))
for dtype, rate in (("fp32", 0.83), ("bf16", 0.42)):
    report = run("hsdp64", ("reduce: fp32", f"reduce: {dtype}"))
    seconds = sum(c["time_s"] for c in report["collectives"] if c["kind"] == "all_reduce")  # at 1 GB/s
    check("UC109", f"GB/s of the all-reduces that explain 8.19 s in place of 1.09, {dtype}", rate, seconds / (8.19 - 1.09), 0.05)

# Offload: the optimizer on the CPU.
def on_host(report): return sum(w["time_s"] for w in report["host_work"])
report = run("offload_405b")
check("lam", "s of a fused AdamW and zero_grad on the hosts, Llama-3.1-405B", 4, on_host(report), 0.15)
check("lam", "s of the step", 30, report["step_time_s"], 0.05)
offloaded, plain = run("offload_v100"), run("offload_v100", ("cpu_offload: true", "cpu_offload: false"))
ratio = offloaded["step_time_s"] / plain["step_time_s"]
holds("UC124", "steps with CPUOffload, over those without, from 3 to 10", round(ratio, 2), 3 <= ratio <= 10)
holds("UC124", "the optimizer's part of what is added, not the copies'",
      round(on_host(offloaded) / (offloaded["step_time_s"] - plain["step_time_s"]), 2),
      on_host(offloaded) > 0.5 * (offloaded["step_time_s"] - plain["step_time_s"]))
vectorised = run("offload_v100", ("{name: adamw}", "{name: adamw, implementation: fused}"))
holds("UC124", "a vectorised Adam helps: steps of the loop over its", round(offloaded["step_time_s"] / vectorised["step_time_s"], 2),
      vectorised["step_time_s"] < offloaded["step_time_s"])
sweep = "".join(
    "# Collective test starting: all_reduce_perf\n" +
    "".join(f"#  Rank {r} Group 0 Pid {r} on node1 device {r} [0x{r}] NVIDIA A100\n" for r in range(n)) +
    "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n" +
    "".join(f"{b} {b // 4} float sum -1 {us} 0.01 0.01 0 {us} 0.01 0.01 0\n" for b in (8, 128))
    for n, us in ((2, 10), (3, 13.76), (4, 16.88), (5, 20.8)))
pathlib.Path(work, "sweep.txt").write_text(sweep)
report = run("small_all_reduce", ("{model: roofline}", "{model: roofline, nccl_table: sweep.txt}"))
check("UC115", "us of a small all-reduce over 8 GPUs, from a sweep of 2 to 5", 33.7,
      next(c["time_s"] * 1e6 for c in report["collectives"] if c["kind"] == "all_reduce"), 0.1)
of = [next(c["time_s"] / c["count"] for c in run("two_levels", *change)["collectives"] if c["kind"] == "all_gather")
      for change in ((), (("nodes: 2", "nodes: 1"), ("gpus_per_node: 8", "gpus_per_node: 16")))]
check("UC119", "time on 2 nodes over that on one, r = 9", 1.533, round(of[0] / of[1], 3))

# Frozen parameters.
def reduced(report):
    return sum(c["bytes_total"] for c in report["collectives_per_step"] if c["kind"] == "reduce_scatter") // 2


mixtral = ("[4096, 49165], [16, 8192]", "[1048576, 1384], [40960, 1], [8, 13312]")
fsdp2 = ("strategy: fsdp1\n  fsdp1: {use_orig_params: true}", "strategy: fsdp2")
for case, changes, whole, trained in (
        ("UC077", (), 201510912, 131072),
        ("UC078", (mixtral, ('["*.0"]', '["*.0", "*.1"]')), 1451376640, 106496)):
    check(case, "elements that FSDP1 reduces", whole, reduced(explain("lora", *changes)))
    check(case, "elements that FSDP2 reduces", trained, reduced(explain("lora", *changes, fsdp2)))
for ranks, times in ((8, 0.1625), (1, 1.30)):
    report = run("ten_percent", ("{preset: hgx-h100}", f"{{preset: hgx-h100, gpus_per_node: {ranks}}}"))
    held = next(m["allocated_bytes"] for m in report["memory"]["marks"] if m["mark"] == "step1.after_optimizer")
    check("UC080", f"state over the parameters' bytes, {ranks} ranks", times, held / (4 * report["model"]["params"]), 0.02)
bytes_of = [explain("llama7b", ("storage: fp32, compute", f"storage: {t}, compute"))["resident_bytes"]["parameters"]
            for t in ("fp32", "bf16")]
check("UC081", "resident bytes of parameters kept in fp32 over bf16", 2.0, bytes_of[0] / bytes_of[1])

# Padding.
of = group(explain("padding"), "layers.0")
check("UC087", "elements, gathered, shard", (13, 16, 8), (of["numel"], of["padded_numel"], of["shard_bytes"] // 4))
of = group(explain("padding", ("[[3, 3], [2, 2]]", "[[96, 32]]"), ("gpus_per_node: 2", "gpus_per_node: 5")), "layers.0")
check("UC088", "rows of a padded shard", 20, of["shard_bytes"] // (4 * 32))
check("UC088", "overhead", round(4 / 96, 6), round(of["padded_numel"] / of["numel"] - 1, 6))
report = explain("padding", ("[[3, 3], [2, 2]]", "[[3, 1]]"), ("gpus_per_node: 2", "gpus_per_node: 4"))
of = group(report, "layers.0")
check("UC090", "Shard(0) of 3 over 4: padded shard, empty shards", (1, 1),
      (of["shard_bytes"] // 4, report["parameters_with_empty_shards"]))
done = play("explain", "padding", ("strategy: fsdp2", "strategy: fsdp2\n  fsdp2: {shard_placement: [{parameter: \"*.0\", dim: 1}]}"))
holds("UC090", "Shard(1) of 3 over 2 is an error", done.returncode, done.returncode == 1 and "uneven" in done.stderr)
of = group(explain("padding", ("[[3, 3], [2, 2]]", "[[128, 4988928], [128, 4988928]]"), ("storage: fp32", "storage: bf16"),
                   ("gpus_per_node: 2", "gpus_per_node: 8")), "layers.0")
check("UC091", "bytes of a layer's experts", 128 * 2 * 2688 * 1856 * 2, of["all_gather_bytes"])

# Two meshes, nested units.
for mesh, times in ((True, 2), (False, 1)):
    report = run("two_meshes", *([] if mesh else [(", second_mesh: {parameters: [\"*.1\"], shard: 4}", "")]))
    of = [c for c in report["collectives"] if c["group"].startswith("layers.1")]
    check("UC092", f"gathers, scatters of a block, {'two meshes' if mesh else 'one mesh'}", (times, times),
          tuple(sum(c["count"] for c in of if c["kind"] == k) for k in ("all_gather", "reduce_scatter")))
report = run("nested_checkpoint")
for part in ("self_attn", "mlp"):
    check("UC100", f"gathers of {part}, forward and backward", 2, counts(report, f"model.layers.1.{part}")[0])

# The numbers of a log.
of = group(explain("qwen7b_table"), "lm_head")
check("UC120", "group, shard, gathered", (544997376, 68124672, 544997376),
      (of["numel"], of["shard_bytes"] // 2, of["padded_numel"]))
of = next(g for g in explain("llama7b", ("strategy: fsdp2", "strategy: fsdp1"))["groups"] if "layers" not in g["name"])
check("UC121", "root without the prompt's 8,192", 262156288 - 8192, of["padded_numel"])

# A simulator's own.
report = run("bandwidth")
slow = run("bandwidth", ("bus: 10 GB/s", "bus: 5 GB/s"))
check("UC130", "communication's time at half the bandwidth", 2.0, slow["comm_busy_s"] / report["comm_busy_s"], 0.01)
for what, change in (("mesh product", ("strategy: fsdp2", "strategy: fsdp2\n  mesh: {replicate: 2, shard: 2}")),
                     ("bandwidth 0", ("bus: 10 GB/s", "bus: 0 GB/s")),
                     ("bandwidth below 0", ("bus: 10 GB/s", "bus: -10 GB/s")),
                     ("unknown key", ("micro_batch: 16", "micro_bach: 16"))):
    done = play("run", "bandwidth", change)
    holds("UC134", f"{what}: a located error, exit code not 0", done.returncode,
          done.returncode == 1 and "case.yaml:" in done.stderr and "error:" in done.stderr)
times = {c["kind"]: set() for c in report["collectives"]}
for c in report["collectives"]:
    if c["group"] != "":
        times[c["kind"]].add(c["time_s"] / c["count"])
holds("UC139", "distinct times of like collectives", {k: len(v) for k, v in times.items()},
      all(len(v) == 1 for v in times.values()))
holds("UC140", "exposed less the sum of its stalls, over the step",
      abs(report["exposed_comm_s"] - sum(e["duration_s"] for e in report["exposed"])) / report["step_time_s"],
      abs(report["exposed_comm_s"] - sum(e["duration_s"] for e in report["exposed"])) <= 1e-9 * report["step_time_s"])
rest = report["step_time_s"] - report["compute_busy_s"] - report["exposed_comm_s"]
holds("UC140", "step less compute and exposed, not below 0", rest, rest >= 0)
for mesh in ("{replicate: 1, shard: 24}", "{replicate: 24, shard: 1}", "{replicate: 3, shard: 8}"):
    done = play("run", "bandwidth", ("strategy: fsdp2", "strategy: fsdp2\n  mesh: " + mesh))
    holds("UC143", f"mesh {mesh} runs", done.returncode, done.returncode == 0)
one = run("bandwidth", ("nodes: 3", "nodes: 1"), ("gpus_per_node: 8", "gpus_per_node: 1"))
holds("UC143", "time of collectives on one GPU", (one["comm_busy_s"], [c["count"] for c in one["collectives"]]),
      one["comm_busy_s"] == 0)

# DeepSpeed.
report = explain("qwen7b_zero2")
check("UC054", "elements of the bucket behind the head's", 2 * 233057792 + 3584, report["reduce_buckets"][1])
small = ("strategy: zero1", """strategy: zero3
  zero:
    reduce_bucket_size: 5e7
    stage3_prefetch_bucket_size: 1e7
    stage3_max_live_parameters: 1e8
    stage3_max_reuse_distance: 1e8""")
for model in ("llama-3.2-1b", "qwen3-0.6b"):
    reports = [run("zero_stages", ("llama-3.2-1b", model), change)
               for change in (("zero1", "zero1"), ("zero1", "zero2"), ("zero1", "zero3"), small)]
    peak = [r["memory"]["peak_reserved_bytes"] for r in reports]
    holds("UC153", f"{model}: reserved of stages 1, 2, 3, 3 with small buffers",
          [round(b / 2**30, 2) for b in peak], peak[2] >= peak[1] and peak[3] == min(peak))
    times = [r["step_time_s"] for r in reports]
    if model == "qwen3-0.6b":
        holds("UC153", f"{model}: step of stages 1, 2, 3", times[:3], times[0] < times[1] < times[2])

# Published profiles: counts and volumes exactly, what is hidden within points.
def counts(report): return tuple(sum(c["count"] for c in report["collectives_per_step"] if c["kind"] == k)
                                 for k in ("all_gather", "reduce_scatter"))
def volume(report, kind): return sum(c["bytes_total"] for c in report["collectives_per_step"] if c["kind"] == kind)
for layers in (12, 24, 36):
    check("jo", f"gathers and scatters of {layers} layers", (2 * layers + 1, layers + 1),
          counts(explain("overlap_gpt2", ("n_layer: 36", f"n_layer: {layers}"))))
check("mtb", "gathers and scatters of 6 layers, 4 micro-batches", (52, 28),
      counts(explain("overlap_gpt2", ("n_layer: 36", "n_layer: 6"), ("seq_len: 1024", "seq_len: 1024\n  grad_accum: 4"))))
report = explain("overlap_llama8b")
check("ccl", "gathered inputs, GB a rank", 8.03026, volume(report, "all_gather") / 4 / 1e9, 1e-6)
check("ccl", "scatters' inputs in fp32, GB a rank", 32.121, volume(report, "reduce_scatter") / 1e9, 1e-4)
kept = explain("overlap_llama8b", ("gpus_per_node: 4", "gpus_per_node: 8"), ("after_forward: true}\n  fsdp2", "after_forward: false}\n  fsdp2"))
check("ccl", "the same over 8 with norm and head kept, GB", 3.8838, volume(kept, "all_gather") / 8 / 1e9, 1e-5)
check("ttJ", "fp32 parameters of a rank of 8, GiB", 3.74, kept["resident_bytes"]["parameters"] / 2**30, 1e-3)
state_of = [ledger("state", ("nodes: 1}", f"nodes: {n}}}"))["resident"]["simulated_bytes"] for n in (1, 8)]
check("ttJ", "GiB of state that 64 ranks save over 8, by formula", 13.09, (state_of[0] - state_of[1]) / 2**30, 0.005)
default = "{reshard_after_forward: true, reshard: [{module: model.layers.31, reshard_after_forward: false}]}"
peaks = [run("kept_llama8b", (default, d))["memory"]["peak_allocated_bytes"]
         for d in (default, "{reshard_after_forward: false}")]
check("ttG", "GiB that 31 blocks cost where they are not resharded", 12.594, (peaks[1] - peaks[0]) / 2**30, 5e-4)
launcher = (("  strategy: fsdp2", "  allocator: {expandable_segments: true}\n  strategy: fsdp2"),
            ('"2025-02"', '"2025-02"\n  pytorch: "2.7"'), ("max_steps: 3", "max_steps: 2, memory: blocks"))
for policy, expected, to in (("default", 49.59, default), ("always", 49.41, "{reshard_after_forward: true}"),
                             ("never", 62.18, "{reshard_after_forward: false}")):
    memory = run("kept_llama8b", (default, to), *launcher)["memory"]
    check("ttG", f"GiB reserved, policy {policy}", expected, memory["peak_reserved_bytes"] / 2**30, 0.004)


def hidden(case, what, expected, spread, *of):
    """Per cent of communication that compute hides, within so many points of what was profiled."""
    got = 100 * run(*of)["overlap_fraction"]
    holds(case, f"{what}: {expected} % hidden", round(got, 1), abs(got - expected) <= spread)


hidden("jo", "GPT-2 large, FSDP1, PCIe", 90.1, 3, "overlap_gpt2")
h100 = "overlap_h100"
for strategy, what, wait, *changes in (
        ("FSDP1 full_shard", 95.14, 58.8),
        ("FSDP1 shard_grad_op", 95, 58.6,
         ("precision:", "fsdp1: {sharding_strategy: shard_grad_op}\n  precision:")),
        ("DDP", 95, 58.3, ("strategy: fsdp1", "strategy: ddp\n  ddp: {no_sync: true}"))):
    hidden("gbd", f"{strategy}, 2 H100", what, 3, h100, *changes)
    check("gbd", f"seconds a step, {strategy}, of 20", wait / 20,
          run(h100, *changes)["step_time_s"], 0.05)

print(f"{checks} checks, {bad} other than expected")
sys.exit(bad != 0)
PYTHON
