#!/usr/bin/env bash
# On a machine with an NVIDIA GPU, nvcc and NCCL: builds the CUDA backend for that GPU, plays layers
# shaped like Llama-3-8B's at world size 1 under three strategies, prints predicted against measured op
# by op, and writes the calibration. Under five minutes, of which the build is most.
#   tests/gpu/check.sh [OUT]     op logs, comparisons and calibration go to OUT (default gpu-check)
# Exit code 3 where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
out=$(realpath -m "${1:-gpu-check}")
export PATH="$PATH:/usr/local/cuda/bin"
command -v nvidia-smi >/dev/null || { echo "no nvidia-smi: this machine has no NVIDIA GPU" >&2; exit 3; }
IFS=, read -r gpu capability < <(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader)
capability=${capability// /}
case $gpu in
  *B200*) preset=hgx-b200 ;;
  *H200*) preset=hgx-h200 ;;
  *H100* | *H800*) preset=hgx-h100 ;;
  *A100* | *A800*) preset=hgx-a100 ;;
  *) echo "no cluster preset for '$gpu': predictions are an H100's" >&2; preset=hgx-h100 ;;
esac
mkdir -p "$out"
echo "== $gpu ($capability), predicted as $preset"

./setup.sh deps >/dev/null
cmake --preset cuda -DSHARDSIM_TESTS=OFF -DSHARDSIM_BENCH=OFF -DSHARDSIM_WERROR=OFF \
  -DSHARDSIM_CUDA_ARCHITECTURES="${capability/./}" >"$out/build.log"
cmake --build --preset cuda --target shardsim >>"$out/build.log"
program=build/cuda/sim/cli/shardsim
echo "== built after $SECONDS s"

scenario() {  # strategy
  local precision="{storage: fp32, compute: bf16, reduce: fp32}"
  [[ $1 != ddp ]] || precision="{autocast: bf16}"
  cat <<EOF
# Four layers of Llama-3-8B on one GPU, for tests/gpu/check.sh.
shardsim: 1
name: llama-layers-$1
model:
  model_type: llama
  hidden_size: 4096
  intermediate_size: 14336
  num_hidden_layers: 4
  num_attention_heads: 32
  num_key_value_heads: 8
  vocab_size: 32000
cluster: {preset: $preset, gpus_per_node: 1}
training:
  seq_len: 4096
  micro_batch: 1
  strategy: $1
  precision: $precision
  optimizer: {name: adamw, implementation: fused}
options: {memory: blocks}
EOF
}

for strategy in fsdp2 fsdp1 ddp; do
  scenario $strategy >"$out/$strategy.yaml"
  echo "== $strategy"
  timeout 60 "$program" replay "$out/$strategy.yaml" --backend cuda --ops "$out/$strategy.json"
  "$program" compare "$out/$strategy.yaml" "$out/$strategy.json" | tee "$out/$strategy.txt"
done
# Rank 0 of eight: collectives as waits of the modelled time.
sed 's/gpus_per_node: 1/gpus_per_node: 8/' "$out/fsdp2.yaml" >"$out/eight.yaml"
echo "== fsdp2, one GPU as rank 0 of 8"
timeout 60 "$program" replay "$out/eight.yaml" --backend cuda --single-gpu --ops "$out/eight.json"
"$program" compare "$out/eight.yaml" "$out/eight.json" | tee "$out/eight.txt"
echo "== calibration"
"$program" calibrate "$out/fsdp2.yaml" --from "$out/fsdp2.json" -o "$out/calibration.yaml"
cat "$out/calibration.yaml"
echo "== done after $SECONDS s; figures in $out"
