#!/usr/bin/env bash
# conform over all recordings of FSDP and DDP, of 2.15 and 2.7.1: tests/conform/shared_recordings.sh SHARDSIM SOURCE_DIR
# They are in $SHARDSIM_SHARED/oracle, or else in ../shared beside the source folder; exits with 77
# (skipped) where they are not. All of the folders are compared, and the random programs;
# memory to 1e-5 (2.7: 1e-4), timelines as the calls below say. The wide ones of 2.7 are one recording
# each: test_transformer_true 0.7 %, checkpoint_around_unit_reentrant 12 %; the others of its FSDP1 are
# within 0.2 %.
set -euo pipefail
program=$1
shared=${SHARDSIM_SHARED:-$2/../shared}
if [[ ! -d $shared/oracle/fsdp2 ]]; then
  echo "skipped: no recordings in $shared/oracle/fsdp2 (set SHARDSIM_SHARED)"
  exit 77
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
exact() { # FOLDER LEAST TIMELINE MEMORY
  errors=(--tolerance "timeline_error=$3")
  for key in allocated_error peak_error active_error reserved_error; do
    errors+=(--tolerance "$key=$4")
  done
  if ! "$program" conform "$shared/oracle/$1" "${errors[@]}" >"$out"; then
    cat "$out"
    return 1
  fi
  summary=$(grep -E '^[0-9]+ recordings, ' "$out")
  sed -n '/^[0-9]* recordings, /,$p' "$out" | tail -n +2
  read -r all _ compared _ skipped _ failed _ <<<"${summary//,/}"
  echo "$1: all $all, compared $compared, skipped $skipped, failed $failed"
  [[ $compared -ge $2 && $failed == 0 && $((compared + skipped)) == "$all" ]]
}
exact fsdp2 120 0.00001 0.00001
exact fsdp1 49 0.0001 0.00001
exact ddp 32 0.00001 0.00001
exact zero 24 0.001 0.00001
exact random 60 0.00001 0.00001
exact pytorch-2.7/fsdp2 38 0.01 0.0001
exact pytorch-2.7/fsdp1 23 0.13 0.0001
exact pytorch-2.7/ddp 14 0.00001 0.0001
