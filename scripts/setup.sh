#!/usr/bin/env bash
# Installs the packages of Debian or Ubuntu that are needed to build and test StageGPT. Does nothing if all are
# installed. On other systems it prints the names of the packages and exits.
#   scripts/setup.sh [--check | --list]
# --check installs nothing: it prints the names of missing packages, and exits with 1 if there are any. --list prints the names
# of all packages.
set -euo pipefail

action=install
case ${1:-} in
  "") ;;
  --check | --list) action=${1#--} ;;
  -h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
  *) echo "setup.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
esac

packages=(g++ cmake ninja-build libcli11-dev nlohmann-json3-dev libopenblas-openmp-dev libgtest-dev libpcre2-dev
  libxxhash-dev zlib1g-dev libedit-dev libboost-dev libboost-context-dev librapidcheck-dev libbenchmark-dev
  libopenmpi-dev openmpi-bin python3 git iproute2)
[ $action != list ] || { echo "${packages[*]}"; exit; }

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "setup.sh: this is neither Debian nor Ubuntu; install the equivalents of these packages: ${packages[*]}" >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing+=("$package")
done

if [ $action = check ]; then
  echo "${missing[*]}"
  [ ${#missing[@]} -eq 0 ]
  exit
fi

require_cmake() {
  local version
  version=$(cmake --version | sed -n '1s/[^0-9]*//p')
  dpkg --compare-versions "$version" ge 3.25 && return
  echo "setup.sh: expected CMake 3.25 or newer, got $version; use Debian 12, Ubuntu 24.04 or newer" >&2
  exit 1
}

[ ${#missing[@]} -gt 0 ] || { require_cmake; exit 0; }

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || {
    echo "setup.sh: run as root, or install sudo, to install: ${missing[*]}" >&2
    exit 1
  }
  as_root=(sudo)
fi

# Shows on a terminal how many packages are ready.
progress() {
  local line count=0
  while read -r line; do
    [[ -t 2 && $line == 'Setting up'* ]] && printf '\rsetup.sh: %d packages installed' $((++count)) >&2
  done
  [ $count -eq 0 ] || echo >&2
}

echo "setup.sh: installing, in one to three minutes, ${missing[*]}" >&2
install=(env DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get install --yes --no-install-recommends -qq -o Dpkg::Use-Pty=0)
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" "${install[@]}" "${missing[@]}" | progress
require_cmake
