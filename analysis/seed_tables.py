#!/usr/bin/env python3
"""Reproduces the tables of the text that this project grew from ("FSDP1 vs FSDP2"), and sets simulated
schedules beside them:

    python3 analysis/seed_tables.py build/release/sim/cli/shardsim > analysis/seed-tables.md

The text's own figures stand here (TEXT); everything else on the page is what shardsim says. A figure
of the text that comes out otherwise ends the script with exit code 1.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SHARDSIM = sys.argv[1]
work = tempfile.TemporaryDirectory()
wrong = []


def shardsim(*arguments):
    done = subprocess.run([SHARDSIM, *map(str, arguments), "--format", "json"],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"shardsim {' '.join(map(str, arguments))}: {done.stderr}")
    return json.loads(done.stdout)


def scenario(**of):
    """A scenario of Llama-2-7B on 8 GPUs, or of two parameters; its path."""
    of = {"model": "{preset: llama-2-7b}", "gpus": 8, "seq_len": "seq_len: 512", "more": "",
          "precision": "{storage: bf16}", "strategy": "fsdp1"} | of
    path = pathlib.Path(work.name, "scenario.yaml")
    path.write_text(f"""shardsim: 1
model: {of['model']}
cluster: {{preset: dgx-h100, gpus_per_node: {of['gpus']}}}
training:
  {of['seq_len']}
  strategy: {of['strategy']}
  precision: {of['precision']}
  activation_checkpointing: {{mode: {of.get('checkpointing', 'full')}}}
  {of['more']}
""")
    return path


def gb(n):
    return f"{n / 1e9:.2f} GB"


def signed(n):
    return f"{'-' if n < 0 else '+'}{gb(abs(n))}"


def held(text, got):
    """A figure of the text, checked."""
    if text != got:
        wrong.append(f"the text says {text}, shardsim {got}")
    return got


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def on_paper(params, ranks, dtype):
    page = shardsim("ledger", "--params", params, "--ranks", ranks, "--dtype", dtype)
    return page["whole_copy_bytes"], {s["scheme"]: s for s in page["schemes"]}


def reasons(entry, least=0.0):
    """The largest reasons of a difference, in words."""
    of = [r for r in entry["reasons"] if abs(r["bytes"]) > least]
    return "; ".join(f"{signed(r['bytes'])} {r['what']}" for r in of) or "none"


def reason(entry, words):
    return sum(r["bytes"] for r in entry["reasons"] if words in r["what"])


print("""# The tables of "FSDP1 vs FSDP2", reproduced

Written by `python3 analysis/seed_tables.py SHARDSIM`; a test writes it again and compares. The text
that this project grew from counts P parameters of b bytes, gradients the same, 8 bytes of AdamW's fp32
moments a parameter and N ranks, in decimal GB. Its figures come out to the digit (first part); what
simulated schedules add to them is in the second.

## Two accounts

""".rstrip() + "\n")

TEXT = {  # resident, worst peak, moved a step
    ("A", 7e9, 8, "bf16", "full_shard"): ("84.00 GB", "10.50 GB", "24.50 GB", "36.75 GB"),
    ("B", 13e9, 4, "fp32", "shard_grad_op"): ("208.00 GB", "52.00 GB", "104.00 GB", "78.00 GB"),
}
rows = []
for (name, params, ranks, dtype, scheme), (whole, resident, peak, moved) in TEXT.items():
    everything, schemes = on_paper(f"{params:.0f}", ranks, dtype)
    s = schemes[scheme]
    rows.append([name, f"{params / 1e9:.0f}e9", ranks, dtype, scheme, held(whole, gb(everything)),
                 held(resident, gb(s["resident_bytes"])), held(peak, gb(s["peak_bytes"])),
                 held(moved, gb(s["communication_bytes"]))])
table(["account", "P", "N", "type", "strategy", "whole copy", "resident", "worst peak",
       "moved a step"], rows)

print("## Three strategies: 7e9 parameters, 8 ranks, bf16\n")
_, seven = on_paper("7e9", 8, "bf16")
rows = []
for scheme, formula, figures in (
        ("full_shard", "3 P b (N-1)/N", ("10.50 GB", "24.50 GB", "36.75 GB")),
        ("shard_grad_op", "2 P b (N-1)/N", ("10.50 GB", "24.50 GB", "24.50 GB")),
        ("no_shard", "2 P b (N-1)/N", ("84.00 GB", "84.00 GB", "24.50 GB"))):
    s = seven[scheme]
    rows.append([scheme, held(figures[0], gb(s["resident_bytes"])),
                 held(figures[1], gb(s["peak_bytes"])),
                 held(figures[2], gb(s["communication_bytes"])), formula])
table(["strategy", "resident", "worst peak", "moved a step", "moved, formula"], rows)

print("## ZeRO's stages: the same 7e9 parameters\n")
P, b, opt, N = 7e9, 2, 8, 8
rows = []
for scheme, title, formula, figure in (
        ("ddp", "DDP", "P (2b + bopt)", P * (2 * b + opt)),
        ("zero1", "ZeRO-1", "2 P b + P bopt/N", 2 * P * b + P * opt / N),
        ("zero2", "ZeRO-2", "P b + P (b + bopt)/N", P * b + P * (b + opt) / N),
        ("zero3", "ZeRO-3, FULL_SHARD", "P (2b + bopt)/N", P * (2 * b + opt) / N)):
    s = seven[scheme]
    rows.append([title, gb(s["parameters_bytes"]), gb(s["gradients_bytes"]),
                 gb(s["optimizer_bytes"]), held(gb(figure), gb(s["resident_bytes"])), formula])
table(["scheme", "parameters", "gradients", "optimizer state", "resident", "formula"], rows)

print("## Padding: parameters of 3 and 5 elements, 4 ranks, bf16\n")
layout = shardsim("layout", scenario(
    model="{model_type: bag, hidden_size: 8, blocks: [[[3], [5]]]}", gpus=4, seq_len="",
    strategy="fsdp2", checkpointing="none"))
rows = []
for x, title, figure, words in zip(
        layout["groups"][0]["layouts"],
        ("FSDP1", "FSDP1, use_orig_params=True", "FSDP2"), (2, 4, 3),
        ("ceil((3+5)/4)", "(3+5+5+3)/4", "ceil(3/4) + ceil(5/4)")):
    names = [p["name"] for p in x["parameters"]]
    whose = [f"{p['elements']} {'before ' + names[p['parameter']] + ' (alignment)' if p['of'] == 'alignment' else 'of ' + names[p['parameter']] if p['parameter'] is not None else 'at the end (world)'}"
             for p in x["padding"]]
    rows.append([title, words, held(figure, x["shard_elements"]), ", ".join(whose) or "none"])
table(["implementation", "count", "elements a rank", "padding over all ranks"], rows)
print("`shardsim layout` shows which elements each rank stores, as text and (`--svg`) as a picture.\n")

print("""# Beside simulated schedules

Llama-2-7B (6.74e9 parameters) on 8 GPUs, 512 tokens, full checkpointing, AdamW; one FSDP unit a block
unless it says root only. On paper: the text's formulas for this P.

## All in bf16
""")
BF16 = "{storage: bf16}"
MIXED = "{storage: fp32, compute: bf16, reduce: fp32}"
ZERO = {"precision": "{}", "more": "zero: {implementation: deepspeed}"}
runs = {}
for title, of in (
        ("FSDP1 FULL_SHARD", {}),
        ("FSDP1 FULL_SHARD, root only", {"more": "wrap: {policy: root_only}"}),
        ("FSDP1 SHARD_GRAD_OP", {"more": "fsdp1: {sharding_strategy: shard_grad_op}"}),
        ("FSDP1 NO_SHARD", {"more": "fsdp1: {sharding_strategy: no_shard}"}),
        ("FSDP2", {"strategy": "fsdp2"}),
        ("FSDP2, reshard_after_forward=False",
         {"strategy": "fsdp2", "more": "fsdp2: {reshard_after_forward: false}"}),
        ("FSDP1 FULL_SHARD, fp32 stored", {"precision": MIXED}),
        ("FSDP2, fp32 stored", {"strategy": "fsdp2", "precision": MIXED}),
        ("DeepSpeed ZeRO-1", ZERO | {"strategy": "zero1"}),
        ("DeepSpeed ZeRO-2", ZERO | {"strategy": "zero2"})):
    runs[title] = shardsim("ledger", scenario(**of))


def beside(titles):
    table(["trained with", "resident: on paper", "simulated", "worst peak: on paper", "simulated",
           "moved: on paper", "simulated"],
          [[t] + [gb(runs[t][e][k]) for e in ("resident", "peak", "communication")
                  for k in ("formula_bytes", "simulated_bytes")] for t in titles])


def why(titles, least=1e8):
    for t in titles:
        for e, title in (("resident", "resident"), ("peak", "worst peak"),
                         ("communication", "moved")):
            entry = runs[t][e]
            if abs(entry["difference_bytes"]) > least or e == "peak":
                print(f"- {t}, {title} {signed(entry['difference_bytes'])}: "
                      f"{reasons(entry, least)}.")


zero = [t for t in runs if "ZeRO" in t]
fp32 = [t for t in runs if "fp32" in t]
bf16 = [t for t in runs if t not in zero + fp32]
beside(bf16)
print("Why, above 0.1 GB:\n")
why(bf16)
print("\n## Stored in fp32, computed in bf16, reduced in fp32\n")
beside(fp32)
why(fp32)
print("\n## DeepSpeed: bf16 parameters, fp32 master weights\n")
beside(zero)
why(zero)

full, root = runs["FSDP1 FULL_SHARD"], runs["FSDP1 FULL_SHARD, root only"]
kept, mixed = runs["FSDP1 SHARD_GRAD_OP"], runs["FSDP1 FULL_SHARD, fp32 stored"]
p = full["params"]
stage2 = runs["DeepSpeed ZeRO-2"]
print(f"""
# What holds, and its limits

- **1/N of parameters, gradients and optimizer state**: holds for both, up to padding and 512-byte
  blocks. With all in bf16 PyTorch's AdamW keeps its moments in bf16 too:
  {signed(reason(full['resident'], 'moments are in bf16'))} of the 8 bytes a parameter that the text counts. Those need parameters
  stored in fp32, and then it is 16 P/N, {gb(16 * p / 8)}, and {gb(mixed['resident']['simulated_bytes'])} simulated (at 7e9: {gb(16 * 7e9 / 8)}).
- **A step of FULL_SHARD moves 3 P b (N-1)/N**: for all but the root, which is not freed after its
  forward: {signed(reason(full['communication'], 'root'))} here, and {signed(reason(root['communication'], 'root'))} where the root is the whole model, which
  leaves SHARD_GRAD_OP's {gb(root['communication']['simulated_bytes'])}. Gradients that are reduced in fp32 add {signed(reason(mixed['communication'], 'reduced in fp32'))}.
- **The worst peak, resident and one whole copy of the parameters**: needs everything gathered at once.
  By blocks {signed(reason(full['peak'], 'some groups'))} of it is not there; with one unit for the model it is, but then a step
  moves 2 P b (N-1)/N: the text's peak and its 3 P b never occur together. SHARD_GRAD_OP has the copy and
  moves 2 P b.
- **What that peak leaves out**: unsharded gradients and the copies they are reduced from
  ({gb(reason(root['peak'], 'unsharded gradients') + reason(root['peak'], 'reduction buffers'))} in one unit, {gb(reason(full['peak'], 'unsharded gradients') + reason(full['peak'], 'reduction buffers'))} by blocks), activations and temporaries
  ({gb(reason(full['peak'], 'activations') + reason(full['peak'], 'temporaries'))} at 512 tokens), allocator pools, NCCL's buffers.
- **SHARD_GRAD_OP's peak is no higher, it only lasts longer**: so for one unit; by blocks it is
  {gb(kept['peak']['simulated_bytes'] - full['peak']['simulated_bytes'])} higher.
- **ZeRO's rows** lack DeepSpeed's fp32 master of the rank's part, {signed(reason(stage2['resident'], 'master'))}, and what the step adds
  ({signed(reason(stage2['peak'], 'there at the peak'))} of gradients in fp32, {signed(reason(stage2['peak'], 'temporaries of the optimizer'))} of temporaries). After the step the parameters are
  gathered, {signed(reason(stage2['communication'], 'behind the optimizer'))}: 3 P b (N-1)/N in place of the paper's 2, since gradients are all-reduced.
- **FSDP2 needs more elements for small parameters, fewer than use_orig_params**: 3 against 2 and 4, as
  above.""")

if wrong:
    sys.exit("\n".join(wrong))
