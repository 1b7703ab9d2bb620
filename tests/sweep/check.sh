#!/usr/bin/env bash
# Sweeps that are killed, resumed, cut in parts and played by one or two threads, and what comes out of
# them: tests/sweep/check.sh SHARDSIM [--small]. Whole, it plays the 10,000 points of ten_thousand.yaml
# twice; small, 1/50 of them.
set -euo pipefail
program=$(realpath "$1") study=$(dirname "$(realpath "$0")")/ten_thousand.yaml
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
shard=()
points=10000
if [[ ${2:-} == --small ]]; then shard=(--shard 1/50) points=200; fi
fail() { echo "FAILED $*"; cat "$work/err"; exit 1; }
sweep() { "$program" sweep "$study" "${shard[@]}" --store "$work/$1.db" "${@:2}" 2>"$work/err" >"$work/out"; }
rows() { python3 - "$work/$1.db" <<<'import sqlite3, sys
try: print(sqlite3.connect("file:%s?mode=ro" % sys.argv[1], uri=True).execute("select count(*) from rows").fetchone()[0])
except sqlite3.Error: print(0)'; }

# Killed when some rows are there and again when more are, then resumed: nothing is lost or played twice.
before=0
for _ in 1 2; do
  "$program" sweep "$study" "${shard[@]}" --store "$work/killed.db" -j 2 >"$work/out" 2>"$work/err" &
  pid=$!
  for _ in $(seq 3000); do
    (($(rows killed) > before)) && break
    kill -0 "$pid" 2>/dev/null || break
    sleep .02
  done
  kill -9 "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  now=$(rows killed)
  ((now >= before)) || fail "rows are lost: $before, then $now"
  before=$now
done
((before > 0)) || fail "no row outlives a kill"
sweep killed -j 2 --format csv || fail "a killed sweep does not go on"
grep -q "$points points, $((points - before)) played, $before found" "$work/err" || fail "played again: $before were there"
cp "$work/out" "$work/two"

sweep one -j 1 --format csv || fail "-j 1"
grep -q "$points points, $points played, 0 found in the store or alike, 0 failed" "$work/err" || fail "points are alike, or fail"
cmp "$work/out" "$work/two" || fail "one and two threads give other results"
echo "sweep: $points points, killed twice with $before rows, resumed; -j 1 and -j 2 alike"
