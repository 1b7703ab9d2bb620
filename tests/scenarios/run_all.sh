#!/usr/bin/env bash
# Runs every scenario: tests/scenarios/run_all.sh SHARDSIM FOLDER...
# Each *.yaml must run and explain, its step time must be a finite number above 0 (or it runs out of
# memory, and its first line says so), and running it again must give the same bits.
set -euo pipefail
program=$1; shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

bad=0 count=0
problem() { echo "$1: $2"; bad=$((bad + 1)); }

for folder in "$@"; do
  shopt -s nullglob
  for scenario in "$folder"/*.yaml; do
    count=$((count + 1))
    if ! "$program" run "$scenario" --format json >"$work/a" 2>"$work/log"; then
      problem "$scenario" "does not run: $(head -1 "$work/log")"
      continue
    fi
    "$program" run "$scenario" --format json >"$work/b" 2>/dev/null
    cmp -s "$work/a" "$work/b" || problem "$scenario" "two runs differ"
    seconds=$(sed -n 's/^  "step_time_s": \([0-9.e+-]*\),\{0,1\}$/\1/p' "$work/a")
    if grep -q '^ *"oom": true' "$work/a"; then
      head -1 "$scenario" | grep -q 'out of memory' || problem "$scenario" "runs out of memory"
    elif [[ -z $seconds ]] || ! awk -v t="$seconds" 'BEGIN { exit !(t > 0 && t < 1e6) }'; then
      problem "$scenario" "step_time_s is '$seconds'"
    fi
    "$program" explain "$scenario" >/dev/null 2>"$work/log" ||
      problem "$scenario" "is not explained: $(head -1 "$work/log")"
    name=$(sed -n 's/^name: *//p' "$scenario")
    [[ $name == "$(basename "$scenario" .yaml)" ]] || problem "$scenario" "its name is '$name'"
    head -1 "$scenario" | grep -q '^# ' || problem "$scenario" "its first line does not say what it shows"
  done
done
echo "$count scenarios, $bad problems"
[[ $bad == 0 && $count -gt 0 ]]
