#!/usr/bin/env bash
# scripts/gpu_bundle.sh with a fake build, fake libraries and a fake Open MPI: what is packed, and that Python unpacks it.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")/../../scripts")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/said" >&2; exit 1; }

mkdir -p "$work"/{path,tree/scripts,mpi/plugins,mpi/texts,libraries/pmix,share/pmix}
cp "$scripts/gpu_bundle.sh" "$work/tree/scripts/"
touch "$work"/mpi/{plugins/mca_{btl_self,mtl_ofi}.so,texts/help.txt} "$work"/libraries/{lib{pmix.so.2,stdc++.so.6,openblas.so.0},pmix/mca_psec.so} \
  "$work/share/pmix/help-pmix.txt"

real_find=$(command -v find)
fake() { cat >"$work/path/$1"; chmod +x "$work/path/$1"; }
fake cmake <<'END'
#!/usr/bin/env bash
echo "cmake $*" >>"$CALLS"
mkdir -p build/bundle/bin
if [ "$1" = -S ]; then
  echo "CMAKE_CUDA_COMPILER:FILEPATH=${NVCC-nvcc}" | sed '/=$/d' >build/bundle/CMakeCache.txt
else
  for name in "${@:4}"; do echo "$name" >"build/bundle/bin/$name"; done
  chmod +x build/bundle/bin/*
fi
END
fake ldd <<END
#!/usr/bin/env bash
for file; do [ -e "\$file" ] || { echo "ldd: \$file: No such file" >&2; exit 1; }; done
[[ \$1 != *ofi* ]] || echo '	libfabric.so.1 => /lib/libfabric.so.1 (0x0)'
for library in pmix.so.2 stdc++.so.6 c.so.6 cublasLt.so.13 nccl.so.2; do
  echo "	lib\$library => $work/libraries/lib\$library (0x0)"
done
END
fake ompi_info <<END
#!/bin/sh
printf 'path:pkglibdir:$work/mpi/plugins\npath:pkgdatadir:$work/mpi/texts\n'
END
fake find <<END
#!/bin/sh
[ "\$1" != /usr/lib ] || { echo $work/libraries/libopenblas.so.0; exit; }
exec $real_find "\$@"
END
fake strip <<'END'
#!/bin/sh
[ "$1" != -o ] || cp "$3" "$2"
END
fake nvcc <<<'echo "release 13.0, V13.0.88"'
fake mpirun <<<'exit'

# bundle ARGUMENTS…: packs into $work/out, and unpacks to $work/unpacked.
bundle() {
  rm -rf "$work/out" "$work/unpacked" "$work/calls"
  CALLS=$work/calls PATH=$work/path:$PATH "$work/tree/scripts/gpu_bundle.sh" "$@" "$work/out" >"$work/said" 2>&1 || return
  python3 -m tarfile -e "$work/out/bundle.tar.xz" "$work/unpacked" >>"$work/said" 2>&1
}
files() { (cd "$work/unpacked/$1" && find . -type f | cut -c 3- | sort); }

bundle || fail 'a bundle'
printf '%s\n' mpirun stage2_{bench,generate,gpu_op_tests,gpu_tests,inspect,train,verify} stage3_{bench,inspect,train,verify} |
  diff - <(files bin) >&2 || fail 'the programs'
printf '%s\n' libpmix.so.2 libstdc++.so.6 openmpi/mca_btl_self.so pmix/mca_psec.so | diff - <(files lib) >&2 || fail 'the libraries'
printf '%s\n' openmpi/help.txt pmix/help-pmix.txt | diff - <(files share) >&2 || fail 'the texts'
[ "$(cd "$work/unpacked" && echo *)" = 'bin contents.txt environment lib share' ] || fail 'the top of the bundle'
[ "$(cd "$work/out" && echo *)" = 'bundle.tar.xz contents.txt' ] || fail 'the files beside the bundle'
[ "$(head -c 6 "$work/out/bundle.tar.xz" | od -An -tx1 | tr -d ' ')" = fd377a585a00 ] || fail 'it is not packed with xz'
[ -x "$work/unpacked/bin/mpirun" ] || fail 'mpirun cannot be executed'
! grep -q '_emulated' "$work/calls" || fail 'emulated programs were built'
grep -q -- '-DCMAKE_CUDA_ARCHITECTURES=90-real ' "$work/calls" || fail 'the architecture'
grep -qE '^ +[0-9]+ bin/stage2_train$' "$work/out/contents.txt" || fail 'the list of the content'
# shellcheck disable=SC1091
found=$(PATH=$work/path:$PATH && source "$work/unpacked/environment" && command -v stage2_train mpirun && echo "$LD_LIBRARY_PATH")
[[ $found == "$work/unpacked/bin/stage2_train"*"$work/unpacked/bin/mpirun"*"$work/unpacked/lib"* ]] || fail "the environment: $found"

bundle --rehearsal --architectures 80-real || fail 'a bundle for a rehearsal'
grep -q -- '-DCMAKE_CUDA_ARCHITECTURES=80-real ' "$work/calls" || fail 'another architecture'
printf '%s\n' stage2_{bench,generate,inspect,train,verify}_emulated stage2_emulated_op_tests stage2_tests stage3_train_emulated | sort |
  diff - <(files bin | grep -E '_emulated|^stage2_tests') >&2 || fail 'the emulated programs'
[ -f "$work/unpacked/lib/libopenblas.so.0" ] || fail 'the library of the emulated programs'
[ -x "$work/unpacked/bin/stage2_train" ] || fail 'the other programs'

! NVCC='' bundle || fail 'a bundle without nvcc'
grep -q 'needs nvcc' "$work/said" || fail 'the message without nvcc'
! bundle --what || fail 'an unknown flag'
