#!/usr/bin/env bash
# The program itself on the stand-ins: tests/standin/check.sh SHARDSIM STANDINS SCENARIOS. No GPU, one
# GPU that plays rank 0, and faults: what is said, the exit code, and what is kept.
set -euo pipefail
program=$(realpath "$1") scenarios=$(realpath "$3")
export LD_LIBRARY_PATH=$(realpath "$2")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

plays() {  # what it is, exit code, words of stdout, words of stderr, command
  local what=$1 want=$2 out=$3 err=$4 code=0
  shift 4
  timeout 60 env "$@" >"$work/out" 2>"$work/err" || code=$?
  if [[ $code == "$want" && $(<"$work/out") == *"$out"* && $(<"$work/err") == *"$err"* ]]; then
    passed=$((passed + 1))
    return
  fi
  failed=$((failed + 1))
  echo "FAILED $what: exit code $code, not $want, or other words"
  sed 's/^/  /' "$work/out" "$work/err" | tail -40
}

cuda=("$program" replay "$scenarios/fsdp2.yaml" --backend cuda --scale 1024 --single-gpu)

plays "no GPU" 3 "" "error: this machine has no NVIDIA GPU" STANDIN_DEVICES=0 "${cuda[@]}"
cp "$program" "$work/shardsim"
plays "no module beside the program" 3 "" "error: the CUDA backend cannot be loaded: " \
  "$work/shardsim" replay "$scenarios/fsdp2.yaml" --backend cuda
plays "one GPU plays rank 0" 0 "one GPU as rank 0 of 4, collectives modelled" "" \
  "${cuda[@]}" --ops "$work/ops.json"
plays "its log joins the prediction" 0 "ops joined, by launch" "" \
  "$program" compare "$scenarios/fsdp2.yaml" "$work/ops.json"
plays "a fault keeps what was measured" 2 "fsdp2" \
  "cublasLtMatmul: an injected fault (13)" STANDIN_FAULT=cublasLtMatmul:100:13:0 \
  "${cuda[@]}" --ops "$work/kept.json"
[[ -s $work/kept.json ]] || { failed=$((failed + 1)); echo "FAILED nothing was kept"; }
plays "too little memory" 2 "" "the device has no" STANDIN_MEMORY=200000000 "${cuda[@]}"
plays "a limit" 2 "" "the device has no" "${cuda[@]}" --memory-limit "100 MiB"
plays "one process of four" 1 "" "the scenario has 4 ranks, and 1 process was started" \
  "$program" replay "$scenarios/fsdp2.yaml" --backend cuda
plays "a rank alone" 2 "" "ranks 1, 2, 3 have not come to the meeting at 127.0.0.1:" \
  RANK=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29611 \
  "$program" replay "$scenarios/fsdp2.yaml" --backend cuda --timeout 1
plays "variables that contradict" 1 "" "RANK is 4, which WORLD_SIZE of 4 does not allow" \
  RANK=4 WORLD_SIZE=4 "$program" replay "$scenarios/fsdp2.yaml" --backend cuda

echo "$passed passed, $failed failed"
[[ $failed == 0 ]]
