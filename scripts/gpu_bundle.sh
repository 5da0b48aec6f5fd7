#!/usr/bin/env bash
# Builds the programs of scripts/gpu_check.sh on a machine with nvcc but without a GPU, and packs them with the libraries
# that a bare machine lacks (Open MPI, OpenBLAS, PCRE2, xxHash, …). CUDA's own libraries, cuBLASLt and NCCL, must be on
# the machine that runs the programs.
#   scripts/gpu_bundle.sh [--architectures LIST] [--rehearsal] [DIR]
# LIST: compute capabilities (default: 90-real, for H100 and H200). --rehearsal adds the emulated programs, so that
# gpu_check.sh --rehearse runs where there is no GPU. DIR (default: gpu_bundle) gets bundle.tar.xz, and contents.txt, which lists
# its content. To run it: scripts/gpu_check.sh --bundle DIR
# The programs need an x86-64-v3 processor (AVX2, FMA) and the glibc of this machine or a newer one. The build is in
# build/bundle.
set -euo pipefail
cd "$(dirname "$0")/.."

architectures=90-real rehearsal='' out=''
while [ $# -gt 0 ]; do
  case $1 in
    --architectures) architectures=${2:?--architectures needs a list}; shift ;;
    --rehearsal) rehearsal=yes ;;
    -h | --help) sed -n '2,11s/^# //p' "$0"; exit 0 ;;
    -*) echo "gpu_bundle.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
    *) out=$1 ;;
  esac
  shift
done
mkdir -p "${out:=gpu_bundle}"
out=$(realpath "$out")
build=build/bundle

programs=(stage2_{train,generate,inspect,verify,bench} stage3_{train,inspect,verify,bench} stage2_gpu_op_tests stage2_gpu_tests)
if [ -n "$rehearsal" ]; then
  programs+=(stage2_{train,generate,inspect,verify,bench}_emulated stage3_train_emulated stage2_emulated_op_tests stage2_tests)
fi

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON -DSTAGEGPT_NATIVE=OFF \
  -DSTAGEGPT_ARCH=x86-64-v3 "-DCMAKE_CUDA_ARCHITECTURES=$architectures" -DSTAGEGPT_TREE=. \
  -DSTAGEGPT_OPENBLAS=libopenblas.so.0 >/dev/null
grep -q '^CMAKE_CUDA_COMPILER:' "$build/CMakeCache.txt" || {
  echo "gpu_bundle.sh: needs nvcc 12 or newer, and CMake found none" >&2
  exit 1
}
cmake --build "$build" --target "${programs[@]}"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/bin" "$root/lib/openmpi" "$root/lib/pmix" "$root/share"

for program in "${programs[@]}"; do
  strip -o "$root/bin/$program" "$build/bin/$program"
done

# libraries_of FILE…: paths of the libraries that they need, but for glibc's and CUDA's.
libraries_of() {
  ldd "$@" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -vE '/lib(c|m|dl|rt|pthread|resolv|util|mvec)\.so|/(ld-linux|libcu|libnvidia|libnvJit|libnccl)'
}

# Open MPI: its launcher, its texts, and its plugins but for those of networks between machines.
openmpi_path() { ompi_info --all --parsable | sed -n "s/^path:$1://p" | head -n 1; }
cp "$(readlink -f "$(command -v mpirun)")" "$root/bin/mpirun"
strip "$root/bin/mpirun"
for plugin in "$(openmpi_path pkglibdir)"/*.so; do
  grep -qE 'libuc[a-z]+\.|libfabric|libibverbs|libpsm|libinfinipath|librdmacm|liboshmem|libnl-' <<<"$(ldd "$plugin")" ||
    cp "$plugin" "$root/lib/openmpi/"
done
cp -rL "$(openmpi_path pkgdatadir)" "$root/share/openmpi"
pmix=$(dirname "$(readlink -f "$(libraries_of "$root"/lib/openmpi/*.so | grep '/libpmix')")")
cp "$pmix"/pmix/*.so "$root/lib/pmix/"
cp -rL "$pmix/../share/pmix" "$root/share/pmix"

with_libraries=("$root"/bin/* "$root"/lib/openmpi/*.so "$root"/lib/pmix/*.so)
if [ -n "$rehearsal" ]; then  # only the emulator loads it
  cp -L "$(find /usr/lib -path '*openblas-openmp/libopenblas.so.0' | head -n 1)" "$root/lib/libopenblas.so.0"
  with_libraries+=("$root/lib/libopenblas.so.0")
fi
libraries_of "${with_libraries[@]}" |
  while read -r library; do cp -L "$library" "$root/lib/"; done

cat >"$root/environment" <<'END'
# Sourced by bash: the programs of this folder find each other and their libraries.
STAGEGPT_BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export STAGEGPT_BUNDLE PATH=$STAGEGPT_BUNDLE/bin:$PATH
export LD_LIBRARY_PATH=$STAGEGPT_BUNDLE/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export OPAL_PREFIX=$STAGEGPT_BUNDLE OPAL_LIBDIR=$STAGEGPT_BUNDLE/lib OPAL_PKGLIBDIR=$STAGEGPT_BUNDLE/lib/openmpi
export OPAL_DATADIR=$STAGEGPT_BUNDLE/share OPAL_PKGDATADIR=$STAGEGPT_BUNDLE/share/openmpi
export PMIX_INSTALL_PREFIX=$STAGEGPT_BUNDLE PMIX_PKGLIBDIR=$STAGEGPT_BUNDLE/lib/pmix PMIX_PKGDATADIR=$STAGEGPT_BUNDLE/share/pmix
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm=isolated  # ranks on this machine only: it may have no ssh
# CUDA's libraries: the loader's, a toolkit's, or those of a Python environment.
for stagegpt_library in libcublasLt.so.@CUDA@ libnccl.so.2; do
  ldconfig -p 2>/dev/null | grep -q "$stagegpt_library" && continue
  for stagegpt_folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    $(python3 -c 'import sys; print(*[p + "/nvidia/*/lib" for p in sys.path if p.endswith("-packages")])' 2>/dev/null); do
    if [ -e "$stagegpt_folder/$stagegpt_library" ]; then
      LD_LIBRARY_PATH=$LD_LIBRARY_PATH:$stagegpt_folder
      break
    fi
  done
done
unset stagegpt_library stagegpt_folder
END
cuda=$(ldd "$build/bin/stage2_train" | sed -n 's/.*libcublasLt\.so\.\([0-9]*\).*/\1/p')
sed -i "s/@CUDA@/$cuda/" "$root/environment"

{
  echo "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)$(git diff --quiet HEAD 2>/dev/null || echo ', with changes')"
  echo "built $(date -u +%F), $("${CXX:-c++}" --version | head -n 1)"
  nvcc=$(sed -n 's/^CMAKE_CUDA_COMPILER:[A-Z]*=//p' "$build/CMakeCache.txt")
  echo "nvcc $("$nvcc" --version | sed -n 's/.*release \([0-9.]*\).*/\1/p'), for $architectures"
  echo
  (cd "$root" && find . -type f -printf '%10s %P\n' | sort -k 2)
} >"$out/contents.txt"
cp "$out/contents.txt" "$root/"

# Python packs and unpacks: a machine may have no program for xz. The programs have most of their code in common, and the window
# reaches over several of them.
python3 - "$root" "$out/bundle.tar.xz" <<'END'
import lzma, os, sys, tarfile

root, bundle = sys.argv[1:]
filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 27}]
with lzma.open(bundle, "wb", filters=filters) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
    for name in sorted(os.listdir(root)):
        tar.add(os.path.join(root, name), name)
END
echo "$out: $(du -k "$out/bundle.tar.xz" | cut -f1) KiB packed, $(du -sk "$root" | cut -f1) KiB unpacked"
