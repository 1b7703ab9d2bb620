#!/usr/bin/env bash
# Plays transcripts: tests/golden/run.sh [--update] SHARDSIM FOLDER...
#
# A transcript is a file *.golden: a line "$ command", what it wrote to stdout, what it wrote to
# stderr (each line after "2| "), and "exit N"; then the next command. A command runs in the
# transcript's folder, where `shardsim` is the program and $TMP an empty folder.
# --update writes what came instead of comparing; look at the difference before you keep it.
set -euo pipefail

update=no
if [[ ${1:-} == --update ]]; then update=yes; shift; fi
if [[ $# -lt 2 ]]; then sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 1; fi
program=$(realpath "$1"); shift
if [[ ! -x $program ]]; then echo "no program at $program" >&2; exit 1; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
ln -s "$program" "$work/bin/shardsim"
export PATH="$work/bin:$PATH" TMP="$work/tmp" LC_ALL=C NO_COLOR=1

play() {  # transcript -> what it should say
  rm -rf "$TMP"
  mkdir "$TMP"
  local command code
  while IFS= read -r command; do
    echo "$command"
    code=0
    (cd "$(dirname "$1")" && bash -c "${command#\$ }") >"$work/out" 2>"$work/err" </dev/null || code=$?
    # A last line without its newline must not swallow the next one.
    sed -e "s|$TMP|\$TMP|g" -e '$a\' "$work/out"
    sed -e "s|$TMP|\$TMP|g" -e 's/^/2| /' -e '$a\' "$work/err"
    echo "exit $code"
  done < <(grep '^\$ ' "$1")
}

passed=0 failed=0
for folder in "$@"; do
  shopt -s nullglob
  for transcript in "$folder"/*.golden; do
    play "$transcript" >"$work/now"
    if cmp -s "$work/now" "$transcript"; then
      passed=$((passed + 1))
    elif [[ $update == yes ]]; then
      cp "$work/now" "$transcript"
      echo "updated $transcript"
    else
      failed=$((failed + 1))
      echo "FAILED $transcript (expected -, got +)"
      diff -u "$transcript" "$work/now" | tail -n +3 || true
    fi
  done
done
echo "golden: $passed passed, $failed failed"
[[ $failed == 0 && ($passed -gt 0 || $update == yes) ]]
