#!/usr/bin/env bash
# scripts/delete_barriers.sh, in a temporary tree, with a fake cmake that builds a test program: the program detects the
# deletion of any line marked with CAUGHT.
set -uo pipefail
script=$(realpath "$(dirname "$0")/../../scripts/delete_barriers.sh")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
mkdir -p scripts stage2_cuda/kernels bin
cp "$script" scripts/
git init -q .

cat >bin/cmake <<'END'
#!/usr/bin/env bash
case $1 in
  -S) mkdir -p "$4/bin"; exit 0 ;;
  --build) ;;
esac
tree=${2%/build}
! grep -q '= (1) + 1' "$tree"/stage2_cuda/kernels/*.cuh || exit 1
build=$2
shift 3
for target; do
  cat >"$build/bin/$target" <<TEST
#!/usr/bin/env bash
! grep -E 'CAUGHT' "$tree"/stage2_cuda/kernels/*.cuh | grep -qvE '__sync'
TEST
  chmod +x "$build/bin/$target"
done
END
chmod +x bin/cmake
export PATH=$scratch/bin:$PATH

cat >stage2_cuda/kernels/a.cuh <<'END'
// __syncthreads() in a comment
  x = 1;
  __syncthreads();  // CAUGHT
  if (!__syncthreads_or(larger)) return;  // CAUGHT
  for (;;) __syncwarp(0xFF);  // CAUGHT
END

failed=0
# expect NAME EXIT_CODE OUTPUT ARGUMENT...
expect() {
  local name=$1 expected_status=$2 expected=$3 status=0 output
  shift 3
  output=$(scripts/delete_barriers.sh "$@" 2>errors) || status=$?
  if [ "$status" -ne "$expected_status" ] || [ "$output" != "$expected" ]; then
    echo "$name: exit code $status, expected $expected_status; output:"; echo "$output"; cat errors; failed=1
  fi
}
a=stage2_cuda/kernels/a.cuh
expect "all caught" 0 "caught $a:3
caught $a:4
caught $a:5"
[ "$(grep -c '__sync' $a)" -eq 4 ] || { echo "the tree itself was changed"; failed=1; }
expect list 0 "$a:3
$a:4
$a:5" --list
expect "no such file" 2 "" b.cuh
expect "unknown argument" 2 "" --lst

b=stage2_cuda/kernels/b.cuh
printf '  // survives deletion: nobody reads it\n  __syncthreads();\n  __syncwarp();  // survives deletion: last\n' >$b
expect "all that survive say why" 0 "SURVIVED as it says $b:2
SURVIVED as it says $b:3" "$b"

printf '  __syncthreads();\n  __syncthreads();  // CAUGHT\n  // survives deletion:\n  __syncwarp();\n' >$b
expect "survivors without a reason" 1 "SURVIVED $b:1
caught $b:2
SURVIVED $b:4" "$b"

printf '  x = __syncthreads_or(1) + 1;\n' >$b
expect "not built without" 1 "NOT BUILT $b:1" "$b"
rm $b

printf '  CAUGHT\n' >>$a
expect "tests that fail anyway" 1 ""
exit $failed
