#!/usr/bin/env bash
# conform over all of the FSDP2 recordings, of 2.15 and 2.7.1: tests/conform/shared_recordings.sh SHARDSIM SOURCE_DIR
# They are in $SHARDSIM_SHARED/oracle/fsdp2, or else in ../shared beside the source folder; exits with
# 77 (skipped) where they are not. At least 79 of the 120 and 29 of the 38 are compared and every one of
# them exactly, timelines to 1e-5.
set -euo pipefail
program=$1
shared=${SHARDSIM_SHARED:-$2/../shared}
if [[ ! -d $shared/oracle/fsdp2 ]]; then
  echo "skipped: no recordings in $shared/oracle/fsdp2 (set SHARDSIM_SHARED)"
  exit 77
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
errors=()
for key in timeline_error allocated_error peak_error active_error reserved_error; do
  errors+=(--tolerance "$key=0.00001")
done
exact() { # FOLDER LEAST
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
exact fsdp2 79
exact pytorch-2.7/fsdp2 29
