#!/usr/bin/env bash
# Includes go one way: tests/layering/check.sh ROOT fails on any #include in ROOT/sim and
# ROOT/backends that its folder may not have. The table is the list of what each folder sees.
set -euo pipefail
cd "$1"

declare -A sees=(
  [sim/base]=""
  [sim/model]="sim/base"
  [sim/cluster]="sim/base"
  [sim/plan]="sim/base sim/model sim/cluster"
  [sim/schedule]="sim/base sim/model sim/cluster sim/plan"
  [sim/schedule/graph]="sim/base sim/model sim/cluster sim/plan sim/schedule"
  [sim/memory]="sim/base sim/model sim/cluster sim/plan sim/schedule"
  [sim/cost]="sim/base sim/model sim/cluster sim/plan sim/schedule"
  [sim/config]="sim/base sim/model sim/cluster sim/plan"
)
sees[sim/engine]="${sees[sim/memory]} sim/memory sim/cost"
sees[sim/report]="${sees[sim/engine]} sim/engine sim/schedule/graph"
sees[sim/report/html]="${sees[sim/report]} sim/report"
sees[sim/study]="${sees[sim/report/html]} sim/report/html sim/config"
sees[sim/cli]="${sees[sim/study]} sim/study backends/replay backends/host backends/cuda"
sees[backends/replay]="${sees[sim/memory]} sim/memory sim/schedule/graph"
sees[backends/host]="${sees[backends/replay]} backends/replay"
sees[backends/cuda]="${sees[backends/replay]} backends/replay"

bad=0 files=0 includes=0
while IFS= read -r file; do
  files=$((files + 1))
  folder=${file%/*}
  if [[ ! -v sees[$folder] ]]; then
    echo "$file: the folder $folder is not in the table of $0"
    bad=$((bad + 1))
    continue
  fi
  while IFS=: read -r line text; do
    [[ $text =~ [\"\<]([^\">]+) ]] || continue
    path=${BASH_REMATCH[1]}
    target=${path%/*}
    includes=$((includes + 1))
    if [[ $path == boost/graph/* && $folder != sim/schedule/graph ]]; then
      echo "$file:$line: only sim/schedule/graph uses Boost.Graph"
      bad=$((bad + 1))
    elif [[ $text == *\"* && ! -v sees[$target] ]]; then
      echo "$file:$line: \"$path\" is not named from the repository's root"
      bad=$((bad + 1))
    elif [[ -v sees[$target] && $target != "$folder" && " ${sees[$folder]} " != *" $target "* ]]; then
      echo "$file:$line: $folder must not include $path"
      bad=$((bad + 1))
    fi
  done < <(grep -nE '^[[:space:]]*#[[:space:]]*include' "$file" || true)
done < <(find sim backends -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.in' \) 2>/dev/null | sort)

echo "layering: $files files, $includes includes, $bad wrong"
[[ $bad == 0 && $files -gt 0 ]]
