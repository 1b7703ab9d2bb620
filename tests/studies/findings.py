#!/usr/bin/env python3
"""Plays the shipped sweeps whole and holds each to its finding: findings.py SHARDSIM STUDIES.

Expected figures are of the public sources that the studies name; where ours differ from a source's,
the study and the line here say so. Exit code 1 when something does not hold."""
import json
import os
import subprocess
import sys
import tempfile

program, studies = (os.path.realpath(p) for p in sys.argv[1:])
bad = checks = points = 0


class Rows:
    """Rows of a sweep by their labels."""

    def __init__(self, name):
        global points
        with tempfile.TemporaryDirectory() as work:
            out = subprocess.run([program, "sweep", f"{studies}/{name}.yaml", "--store", f"{work}/a.db",
                                  "--format", "json"], capture_output=True, text=True)
        if out.returncode:
            sys.exit(f"{name}: {out.stderr}")
        self.rows = {tuple(p["labels"]): p for p in json.loads(out.stdout)["points"]}
        points += len(self.rows)
        failed = [p["error"] for p in self.rows.values() if p["error"]]
        holds(name, f"{len(self.rows)} points, none of which fails", failed[:1], not failed)

    def step(self, *labels):
        return self.rows[labels]["step_time_s"]

    def peak(self, *labels):
        return self.rows[labels]["peak_bytes"]

    def fits(self, *labels):
        return self.rows[labels]["fits"]


def holds(study, what, got, right):
    global bad, checks
    checks += 1
    bad += not right
    print(f"{study}  {'holds' if right else 'OTHER'}  {what}: {got}")


def within(study, what, expected, got, tolerance):
    holds(study, f"{what}: expected {expected} +- {tolerance}", round(got, 3), abs(got - expected) <= tolerance)


# Wrapping. One unit is slower than one for each block (SpecForge #566, 8 GPUs: 7.6 %, of a draft model
# and its target, which no scenario is; the share that comes out is in the range below), and gathers all
# parameters at once: on paper 2 bytes of all blocks but about two. Large groups pay on many nodes, where
# blocks' messages are small (ai-infra-cluster-provisioning #360).
for name, blocks, per_block in (("llama2-7b", 32, 202_383_360), ("llama2-13b", 40, 317_204_480),
                                ("llama3-8b", 32, 218_112_000), ("llama3-70b", 80, 855_654_400)):
    study = f"wrapping/{name}"
    rows = Rows(study)
    nodes = [str(2 ** k) for k in range(8)]
    slower = [rows.step("all", n) / min(rows.step(g, n) for g in "1248") for n in nodes]
    holds(study, "one unit is slower than the best group, on 1 to 128 nodes",
          [round(s, 3) for s in slower], min(slower) > 1)
    holds(study, "one unit over one for each block on a node (published 1.08)",
          round(rows.step("all", "1") / rows.step("1", "1"), 3),
          1.02 < rows.step("all", "1") / rows.step("1", "1") < 1.10)
    kept = (rows.peak("all", "16") - rows.peak("1", "16")) / (2 * per_block * blocks)
    holds(study, "what one unit holds more than one for each block, of the blocks in bf16", round(kept, 2),
          .5 < kept < 3.1)  # gathered parameters, and their gradients in bf16 and fp32
    holds(study, "8 blocks a group over 1, on 1 and 128 nodes",
          [round(rows.step("8", n) / rows.step("1", n), 3) for n in ("1", "128")],
          rows.step("8", "1") > rows.step("1", "1") and rows.step("8", "128") < .98 * rows.step("1", "128"))
    if name == "llama3-70b":
        # 16 bytes of 70.55e9 parameters over 8 are 141 GB alone.
        holds(study, "does not fit on a node, does on 4 by blocks",
              [rows.fits("1", "1"), rows.fits("1", "4")], not rows.fits("1", "1") and rows.fits("1", "4"))

# Resharding: torchtitan 5940ddeb5, 8 H100: +2.8 % for 12.594 GiB; "always" takes the same time.
study = "reshard/llama3-8b"
rows = Rows(study)
default = ("all but the last", "1")
within(study, "never over the default, % faster", 2.8, 100 * (rows.step(*default) / rows.step("never", "1") - 1), 1.5)
within(study, "GiB that never takes more", 12.594, (rows.peak("never", "1") - rows.peak(*default)) / 2**30, .001)
within(study, "always over the default", 1.001, rows.step("always", "1") / rows.step(*default), .003)
between = [rows.peak("always", n) < rows.peak(f"to {g}", n) < rows.peak("never", n)
           for n in ("2", "4", "8", "16") for g in (4, 8)]
holds(study, "into 4 or 8: memory between always and never", len(between), all(between))

# HSDP: oumi #213, 4 nodes: 1.344 at the bandwidth that its FULL_SHARD step shows.
study = "hsdp/llama-2b-a100"
rows = Rows(study)
buses = [f"{b} GB/s" for b in ("1", "2", "2.34", "4", "6", "8", "12", "16", "24", "32", "48", "96")]
gain = [rows.step("over all", b) / rows.step("in each node", b) for b in buses]
within(study, "HSDP over FULL_SHARD at 2.34 GB/s", 1.344, gain[2], .05)
holds(study, "gain by bandwidth falls to none", [round(g, 3) for g in gain],
      all(a > b for a, b in zip(gain[2:], gain[3:])) and abs(gain[-1] - 1) < .01)
# fp32 parameters, 1/4 of 1.71e9 in place of 1/16: 4 bytes x 1.71e9 x 3/16 = 1.19 GiB; no gradient is
# there yet at the peak.
within(study, "GiB that HSDP takes more", 1.19,
       (rows.peak("in each node", "8 GB/s") - rows.peak("over all", "8 GB/s")) / 2**30, .03)

# Accumulation: cosmos-framework #162, 4 micro-batches: 88.8 s, 54.3 to 54.9 s.
study = "accumulation/hsdp-a100x16"
rows = Rows(study)
within(study, "s of 4 micro-batches, all of it each time", 88.8, rows.step("all of it each time", "4"), .1)
within(study, "s of 4 micro-batches, all-reduce last", 54.6, rows.step("all-reduce last", "4"), .3)
study = "accumulation/llama3-8b"
rows = Rows(study)
# tnt #1057: unsharded gradients in place of sharded ones: 4 bytes x 8.03e9 x 15/16 = 28.05 GiB.
within(study, "GiB of gradients that are reduced last", 28.05,
       (rows.peak("reduce last", "4") - rows.peak("reduce each time", "4")) / 2**30, .1)
faster = {way: rows.step("reduce each time", "8") / rows.step(way, "8")
          for way in ("reduce last", "keep gathered, reduce last")}
holds(study, "reducing last is faster, gathered parameters too",
      {w: round(f, 3) for w, f in faster.items()},
      1 < faster["reduce last"] < faster["keep gathered, reduce last"])

print(f"{checks} checks of {points} points, {bad} other than expected")
sys.exit(bad > 0)
