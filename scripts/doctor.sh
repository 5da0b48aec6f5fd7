#!/usr/bin/env bash
# Reports what this machine lacks to build StageGPT, before anything has been built. Then it runs the program doctor, if that
# is built, which reports what is missing to train.
#   scripts/doctor.sh [arguments of doctor]
# The exit code is 1 if the compiler, a tool or a package of scripts/setup.sh is missing or too old, or if stage 0 cannot train.
# Lines of this script go to standard error, those of the program doctor to standard output.
set -uo pipefail
case ${1:-} in -h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.." || exit 1

exit_code=0
# report MARK SUBJECT FOUND [ADVICE], in the layout of the program doctor.
report() {
  printf '%-8s %-17s %s\n' "$1" "$2" "$3" >&2
  [ $# -lt 4 ] || printf '%-26s -> %s\n' '' "$4" >&2
  [ "$1" != problem ] || exit_code=1
}

# at_least VERSION NEEDED: whether VERSION is NEEDED or newer.
at_least() { [ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# Code that an old compiler cannot compile.
cxx20='#include <omp.h>
#include <algorithm>
#include <span>
int main() { return static_cast<int>(std::ranges::count(std::span<int>(), 0)) + omp_get_max_threads(); }'

compiler() {
  local -a command
  local errors
  read -ra command <<<"${CXX:-c++}"  # CXX may be "ccache g++"
  if ! command -v "${command[0]}" >/dev/null; then
    report problem compiler "${command[0]} not found" "./scripts/setup.sh installs g++"
  elif ! errors=$("${command[@]}" -std=c++20 -fopenmp -fsyntax-only -x c++ - 2>&1 <<<"$cxx20"); then
    report problem compiler "${command[*]} does not compile C++20: $(head -n 1 <<<"$errors")" \
      "install a newer g++ (12 is tested), or set CXX"
  else
    report ok compiler "$("${command[@]}" --version | head -n 1)"
  fi
}

# tool NAME NEEDED: checks a tool, and its oldest usable version.
tool() {
  local version
  if ! command -v "$1" >/dev/null; then
    report problem "$1" "not found" "./scripts/setup.sh installs it"
    return
  fi
  version=$("$1" --version | head -n 1 | grep -Eo '[0-9][0-9.]*' | head -n 1)
  if at_least "$version" "$2"; then
    report ok "$1" "$version"
  else
    report problem "$1" "version $version, $2 or newer is needed" "use Debian 12, Ubuntu 24.04, or install a newer $1"
  fi
}

packages() {
  local missing
  if missing=$(./scripts/setup.sh --check 2>&1); then
    report ok packages "all packages of scripts/setup.sh are installed"
  elif command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
    report problem packages "missing: $missing" "run ./scripts/setup.sh"
  else
    report note packages "this is neither Debian nor Ubuntu" "install the equivalents of the packages in scripts/setup.sh"
  fi
}

# Two parallel compilers need less than 2 GiB. Programs and tests need 0.4 GB of disk, with sanitizers 3 GB.
room() {
  local memory disk
  memory=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  disk=$(df -Pm . | awk 'END {print $4}')
  if [ "${memory:-0}" -ge 2048 ]; then report ok memory "$memory MiB available"; else
    report note memory "$memory MiB available" "build with fewer parallel compilers: cmake --build --preset release -j 1"
  fi
  if [ "${disk:-0}" -ge 4096 ]; then report ok disk "$disk MiB free"; else
    report note disk "$disk MiB free" "programs and tests take 0.4 GB, with ./scripts/test.sh --full 4 GB"
  fi
}

gpu_tools() {
  local nvcc
  nvcc=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)
  if [ -n "$nvcc" ]; then report ok nvcc "$("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'), in $nvcc"; else
    report note nvcc "not found: GPU programs will not be built" "for a GPU, install the CUDA toolkit, 12 or newer; the emulator does not need it"
  fi
}

compiler
tool cmake 3.25
tool ninja 1.10
tool python3 3.11  # of scripts, tests and labs/lab
packages
room
gpu_tools

built=$(ls -t build/*/bin/doctor 2>/dev/null | head -n 1)
if [ -z "$built" ]; then
  report note doctor "not built yet; it reports more about this machine" "cmake --preset release && cmake --build --preset release --target doctor"
  exit $exit_code
fi
"./$built" "$@" || exit_code=1
exit $exit_code
