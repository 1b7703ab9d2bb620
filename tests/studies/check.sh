#!/usr/bin/env bash
# Plays the commands of a study: tests/studies/check.sh [--update] SHARDSIM README...
#
# A study is a README.md among its scenarios. Its fenced blocks whose first line is "$ command" hold
# what the commands print to stdout, run in the study's folder where `shardsim` is the program. And
# each figure of the text in **bold** must be in one of those blocks.
# --update writes what came into the blocks; look at the difference, and at the text, before you keep
# it.
set -euo pipefail

update=no
if [[ ${1:-} == --update ]]; then update=yes; shift; fi
if [[ $# -lt 2 ]]; then sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 1; fi
program=$(realpath "$1"); shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$program" "$work/bin/shardsim"
export PATH="$work/bin:$PATH" LC_ALL=C NO_COLOR=1

# The study with the blocks as they should be.
play() {
  local inside=no line
  while IFS= read -r line; do
    if [[ $inside == no ]]; then
      echo "$line"
      if [[ $line == '```'* ]]; then inside=first; fi
    elif [[ $line == '```' ]]; then
      echo "$line"
      inside=no
    elif [[ $line == '$ '* && $inside != other ]]; then
      inside=commands
      echo "$line"
      (cd "$(dirname "$1")" && bash -c "${line#\$ }" 2>/dev/null </dev/null) | tee -a "$work/printed" || true
    elif [[ $inside != commands ]]; then
      inside=other
      echo "$line"
    fi
  done <"$1"
}

bad=0
for study in "$@"; do
  : >"$work/printed"
  play "$study" >"$work/now"
  if [[ ! -s $work/printed ]]; then
    echo "$study: its commands print nothing"
    bad=$((bad + 1))
  elif ! cmp -s "$work/now" "$study"; then
    if [[ $update == yes ]]; then
      cp "$work/now" "$study"
      echo "updated $study"
    else
      echo "$study: its commands print otherwise (expected -, got +)"
      diff -u "$study" "$work/now" | tail -n +3 || true
      bad=$((bad + 1))
    fi
  fi
  figures=0
  while IFS= read -r figure; do
    figures=$((figures + 1))
    if ! grep -qF -- "$figure" "$work/printed"; then
      echo "$study: no command prints $figure"
      bad=$((bad + 1))
    fi
  done < <(grep -oE '\*\*[^*]*[0-9][^*]*\*\*' "$study" | sed 's/\*\*//g' | sort -u)
  echo "$study: $(wc -l <"$work/printed") lines, $figures figures"
done
[[ $bad == 0 ]]
