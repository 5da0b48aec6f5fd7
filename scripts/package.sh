#!/usr/bin/env bash
# Builds a Debian package of the programs without CUDA: build/package/stagegpt_VERSION_ARCHITECTURE.deb. On x86-64 the
# programs need an x86-64-v3 processor (AVX2, FMA). The packages of scripts/setup.sh must be installed, and dpkg-dev and file.
#   scripts/package.sh
set -euo pipefail
case ${1:-} in
  "") ;;
  -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
  *) echo "package.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
esac
cd "$(dirname "$0")/.."

missing=()
command -v dpkg-shlibdeps >/dev/null || missing+=(dpkg-dev)
command -v file >/dev/null || missing+=(file)
[ ${#missing[@]} -eq 0 ] || { echo "package.sh: not installed: ${missing[*]}" >&2; exit 1; }

processor=
[ "$(uname -m)" != x86_64 ] || processor=x86-64-v3
build=build/package
# Installed programs find their files relative to themselves: STAGEGPT_TREE, the source tree, is none of this machine's.
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DSTAGEGPT_TESTS=OFF -DSTAGEGPT_NVCC=OFF \
  -DSTAGEGPT_NATIVE=OFF -DSTAGEGPT_ARCH=$processor -DSTAGEGPT_TREE=. >/dev/null
cmake --build "$build" >&2
rm -f "$build"/stagegpt_*.deb
(cd "$build" && cpack -G DEB >/dev/null)
ls "$build"/stagegpt_*.deb
