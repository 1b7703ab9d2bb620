#!/usr/bin/env bash
# ./setup.sh              installs what is missing, builds, and simulates the main job
# ./setup.sh test         the same as far as the build, then runs the tests
# ./setup.sh deps [more]  only installs (and the further packages that are named)
# Needs Debian 12 or Ubuntu 24.04, and root or sudo if something has to be installed.
set -euo pipefail
cd "$(dirname "$0")"

packages=(g++ cmake ninja-build libboost-dev libyaml-cpp-dev libfmt-dev libcli11-dev
  nlohmann-json3-dev libeigen3-dev libsqlite3-dev zlib1g-dev libgtest-dev libbenchmark-dev)

install_missing() {
  local missing=() package root=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  if [[ ${#missing[@]} -eq 0 ]]; then return; fi
  if [[ $EUID -ne 0 ]]; then root=(sudo); fi
  echo "installing: ${missing[*]}" >&2
  "${root[@]}" apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -qq -y --no-install-recommends \
    "${missing[@]}" >&2
}

build() {
  cmake --preset release -DSHARDSIM_WERROR=OFF "$@" >&2
  cmake --build --preset release >&2
}

case ${1:-run} in
  run)
    install_missing "${packages[@]}"
    build -DSHARDSIM_TESTS=OFF -DSHARDSIM_BENCH=OFF
    build/release/sim/cli/shardsim run scenarios/llama3-8b-fsdp2-h100x8.yaml
    ;;
  test)
    install_missing "${packages[@]}"
    build -DSHARDSIM_TESTS=ON -DSHARDSIM_BENCH=ON
    ctest --preset release -j "$(nproc)"
    ;;
  deps)
    install_missing "${packages[@]}" "${@:2}"
    ;;
  *)
    sed -n '2,5s/^# //p' "$0" >&2
    exit 1
    ;;
esac
