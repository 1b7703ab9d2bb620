#!/usr/bin/env bash
# Replays on the host as a user starts them: tests/replay/check.sh SHARDSIM SCENARIOS. Ranks as threads
# and, where mpirun is, as processes; Ctrl-C, and a rank that is killed.
set -euo pipefail
program=$(realpath "$1") scenarios=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
passed=0 failed=0

check() {  # what it is, whether it holds
  if [[ $2 == 0 ]]; then passed=$((passed + 1)); return; fi
  failed=$((failed + 1))
  echo "FAILED $1"
  sed 's/^/  /' "$work/out" "$work/err" | tail -40
}

# Runs with a limit of its own: a hang is a failure.
plays() { timeout -k 5 120 "$@" >"$work/out" 2>"$work/err"; }

for name in fsdp2 fsdp1 ddp zero3; do
  plays "$program" replay "$scenarios/$name.yaml" --warmup 2 --steps 3 &&
    grep -q "all brought what was sent" "$work/out" &&
    grep -q "^  a step on 4 ranks " "$work/out" && code=0 || code=1
  check "$name as threads" $code
done

# Every launch of the log is the prediction's of the same number.
plays "$program" replay "$scenarios/fsdp2.yaml" --ops "$work/ops.json" &&
  plays "$program" compare "$scenarios/fsdp2.yaml" "$work/ops.json" &&
  grep -qE "^([0-9]+) of \1 and \1 ops joined, by launch" "$work/out" && code=0 || code=1
check "a replay's log joins the prediction by launch" $code

# Waits for the run to begin, and then so many seconds.
under_way() {
  for _ in $(seq 300); do
    grep -q "^playing" "$work/err" && break
    sleep .1
  done
  sleep "$1"
}

# A check at a moment of the run, which may come too early for what it looks for, or too late: again
# later and later. What is tried says 0, 1 (wrong) or 2 (not the moment).
at_some_moment() {
  local after code
  for after in 0 .1 .2 .4 .8 1.6 3.2; do
    "$1" "$after" && code=0 || code=$?
    [[ $code == 2 ]] || return "$code"
  done
  return 1
}

# The first signal stops the run, which keeps what it has: a log of a whole step.
ops_of() { grep -c '"launch": [0-9]' "$1"; }
interrupt() {
  local code=0
  : >"$work/err"
  timeout -k 5 120 "$program" replay "$scenarios/fsdp2.yaml" --steps 1000 --ops "$work/cut.json" \
    >"$work/out" 2>"$work/err" &
  local pid=$!
  under_way "$1"
  kill -INT "$(pgrep -P "$pid" | head -1)" 2>/dev/null || { wait "$pid" || true; return 2; }
  wait "$pid" || code=$?
  echo "exit $code" >>"$work/out"
  if [[ $code == 0 ]] || grep -q "no timed step ended" "$work/out"; then return 2; fi
  [[ $code == 130 ]] && grep -q "did not end and are left out" "$work/out" &&
    grep -q "rank 0: " "$work/err" && grep -q '"stopped: ' "$work/cut.json" &&
    [[ $(ops_of "$work/cut.json") == $(ops_of "$work/ops.json") ]]
}
at_some_moment interrupt && code=0 || code=1
check "Ctrl-C keeps the steps that ended" $code

if command -v mpirun >/dev/null && "$program" replay --help | grep -q "Built with MPI"; then
  mpi=(mpirun --oversubscribe -np)
  # OpenMPI and hwloc leave memory behind from modules that they have unloaded, which no suppression can
  # name; the replays by threads above are held to none.
  export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
  for name in fsdp2 fsdp1 ddp zero3; do
    plays "${mpi[@]}" 4 "$program" replay "$scenarios/$name.yaml" --warmup 2 --steps 3 &&
      grep -q "all brought what was sent" "$work/out" &&
      grep -q "^  a step on 4 ranks " "$work/out" && code=0 || code=1
    check "$name as processes" $code
  done
  plays "${mpi[@]}" 3 "$program" replay "$scenarios/fsdp2.yaml" && code=1 || code=0
  grep -q "4 ranks, and 3 processes" "$work/err" || code=1
  check "3 processes for 4 ranks" $code
  # One rank plays another scenario.
  plays mpirun --oversubscribe -np 3 "$program" replay "$scenarios/fsdp2.yaml" : \
    -np 1 "$program" replay "$scenarios/fsdp1.yaml" && code=1 || code=0
  grep -q "do not issue the same collectives" "$work/err" || code=1
  check "a rank with another schedule" $code
  # A rank is killed.
  kill_one() {
    : >"$work/err"
    "${mpi[@]}" 4 "$program" replay "$scenarios/fsdp2.yaml" --steps 1000 \
      >"$work/out" 2>"$work/err" &
    local pid=$! over=1
    under_way "$1"
    kill -9 "$(pgrep -f "$program replay .*--steps 1000" | grep -vx "$pid" | tail -1)" 2>/dev/null || true
    for _ in $(seq 300); do
      kill -0 "$pid" 2>/dev/null || { over=0; break; }
      sleep .1
    done
    wait "$pid" && return 2
    [[ $over == 0 ]] || return 1
    grep -q "ended .* of shard" "$work/err" || return 2
  }
  at_some_moment kill_one && code=0 || code=1
  check "a rank that is killed ends the others, which say where they were" $code
else
  echo "no mpirun, or a build without MPI: ranks as processes are not tried"
fi
echo "replay: $passed passed, $failed failed"
[[ $failed == 0 ]]
