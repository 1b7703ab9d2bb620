#!/usr/bin/env bash
# The shipped calibrations of single kernels are what `calibrate` makes of the published table, and the
# rows kept apart keep to 6 % (median): tests/validation/kernels.sh SHARDSIM SOURCE_DIR
# The table is $SHARDSIM_SHARED/data/gemm_measured.csv, or else in ../shared beside the source folder;
# exits with 77 (skipped) where it is not.
set -euo pipefail
program=$1
table=${SHARDSIM_SHARED:-$2/../shared}/data/gemm_measured.csv
if [[ ! -f $table ]]; then
  echo "skipped: no table $table (set SHARDSIM_SHARED)"
  exit 77
fi
for file in "$2"/scenarios/calibrations/*-kernel.yaml; do
  gpu=$(basename "$file" -kernel.yaml)
  date=$(sed -n 's/^date: "\(.*\)"/\1/p' "$file")
  "$program" calibrate "$table" --gpu "$gpu" --date "$date" \
    --split "$2/analysis/validation/kernels-split.yaml" | diff "$file" -
done
"$program" validate "$table" >validate-kernels.txt
cat validate-kernels.txt
median=$(sed -n 's/.*rows kept apart have a median of \(.*\) %\./\1/p' validate-kernels.txt)
awk -v m="$median" 'BEGIN { exit !(m != "" && m <= 6) }'
