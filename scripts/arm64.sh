#!/usr/bin/env bash
# Cross-compiles for Debian arm64, and runs a part of the tests there in QEMU's emulation of the processor: units, stage 0's op table, the
# emulator, checkpoints, tokenizers, a short training of each stage, two ranks. Not part of CI.
#   scripts/arm64.sh [ROOT]
# ROOT (default: /var/tmp/stagegpt-arm64) becomes the root file system of a minimal Debian arm64 with the packages of setup.sh. Needs
# root, Debian, and its packages g++-aarch64-linux-gnu, qemu-user-static and debootstrap.
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;; esac
cd "$(dirname "$0")/.."
root=$(realpath -m "${1:-/var/tmp/stagegpt-arm64}")
left_out=EmulatedMemoryDeathTest.needs_addresses  # QEMU takes more addresses than its limit
programs='unit_tests stage0_op_tests data_tests checkpoint_tests training_tests emulator_tests'

for program in aarch64-linux-gnu-g++ qemu-aarch64-static debootstrap; do
  command -v $program >/dev/null || { echo "arm64.sh: expected $program; see --help" >&2; exit 1; }
done
if [ ! -e "$root/.ready" ]; then
  echo "arm64.sh: making $root, in about ten minutes" >&2
  debootstrap --arch=arm64 --variant=minbase --include=ca-certificates bookworm "$root"
  cp /etc/resolv.conf "$root/etc/"
  # shellcheck disable=SC2046  # a list of names
  DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get install --yes --no-install-recommends -qq $(./scripts/setup.sh --list)
  touch "$root/.ready"
fi

export STAGEGPT_ARM64_ROOT=$root
cmake --preset arm64
cmake --build --preset arm64
here="$root$PWD"
mkdir -p "$here"
trap 'umount "$here" "$root/proc" "$root/dev/pts" "$root/dev/shm"' EXIT
mount --bind "$PWD" "$here"
mount -t proc proc "$root/proc"
mount -t devpts devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
chroot "$root" /bin/bash -c "cd '$PWD' && export OMP_WAIT_POLICY=passive && for program in $programs; do
  echo \"== \$program\" && build/arm64/bin/\$program --gtest_brief=1 --gtest_filter=-$left_out || exit; done &&
  ctest --preset arm64 -R 'ShortTraining|communication_tests_of_2_ranks|stage2_emulated_op_tests_quick'"
