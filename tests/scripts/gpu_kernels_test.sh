#!/usr/bin/env bash
# scripts/gpu_kernels.py with a fake cuobjdump.
set -euo pipefail
script=$(realpath "$(dirname "$0")/../../scripts/gpu_kernels.py")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; cat "$work/said" >&2; exit 1; }

# Two kernels: k::scale<float, 4>(float*), and k::multiply<k::TensorCores<64>>(float*).
scale=_ZN1k5scaleIfLi4EEEvPf multiply=_ZN1k8multiplyINS_11TensorCoresILi64EEEEEvPf
cat >"$work/cuobjdump" <<END
#!/usr/bin/env bash
if [ "\$1" = --dump-resource-usage ]; then cat <<TEXT
arch = sm_80

Resource usage:
 Function $scale:
  REG:33 STACK:0 SHARED:256 LOCAL:0 CONSTANT[0]:376 TEXTURE:0
 Function $multiply:
  REG:255 STACK:\${STACK:-0} SHARED:1024 LOCAL:0 CONSTANT[0]:376 TEXTURE:0
TEXT
else cat <<TEXT
	code for sm_80
		Function : $scale
        /*0000*/                   \${LOAD:-LDG.E.128} R4, [R2.64] ;    /* 0x0000 */
        /*0010*/              @!P0 STG.E.128 [R2.64], R4 ;        /* 0x0000 */
        /*0020*/                   LDG.E R4, [R2.64] ;            /* 0x0000 */
		Function : $multiply
        /*0000*/                   LDGSTS.E.BYPASS.128 [R0], [R2.64] ;
        /*0010*/                   \${MMA:-HMMA.16816.F32.BF16} R4, R8, R12, R4 ;
        /*0020*/                   HADD2 R4, R8, R12 ;
TEXT
fi
END
chmod +x "$work/cuobjdump"
export PATH="$work:$PATH"

"$script" program >"$work/said" 2>&1 || fail "two kernels without problems"
grep -qFx 'sm_80' "$work/said" || fail "the architecture"
# 33 registers are granted as 40, 1,280 for a warp: 51 warps. 255 as 256: 8 warps.
grep -qFx '| `scale<float, 4>` | 33 | 256 | 0 | 51 | 0 | 0 | 1 | 1 | 0 |' "$work/said" || fail "the row of scale"
grep -qFx '| `multiply<TensorCores<64>>` | 255 | 1024 | 0 | 8 | 1 | 0 | 0 | 0 | 1 |' <(sed 's/> >/>>/' "$work/said") ||
  fail "the row of multiply"
"$script" program --only multiply >"$work/said" 2>&1 || fail "one kernel"
! grep -q 'scale' "$work/said" || fail "a kernel that was not asked for"

refused() { # MESSAGE, with the environment of the caller
  if "$script" program >"$work/said" 2>&1; then fail "passed, expected: $1"; fi
  grep -qF "$1" <(sed 's/> >/>>/' "$work/said") || fail "expected: $1"
}
STACK=16 refused 'sm_80: multiply<TensorCores<64>> uses 16 bytes of local memory'
MMA=FFMA refused 'sm_80: multiply<TensorCores<64>> has no instruction of tensor cores'
LOAD=LDG.E refused 'sm_80: scale<float, 4> has no load of 16 bytes'
sed -i "s/$multiply/_ZN1k17matmul_mma_kernelEPf/" "$work/cuobjdump"
MMA=FFMA refused 'sm_80: matmul_mma_kernel has no instruction of tensor cores'
sed -i 's/_ZN1k17matmul_mma_kernelEPf/_ZN1k20wgmma_forward_kernelEPf/' "$work/cuobjdump"
refused 'sm_80: wgmma_forward_kernel has no wgmma, or no copy of the copy engine'
MMA=HGMMA.64x64x16.F32.BF16 "$script" program >"$work/said" 2>&1 || fail "a kernel with wgmma"
sed -i 's/_ZN1k20wgmma_forward_kernelEPf/_ZN1k18matmul_ring_kernelEPf/' "$work/cuobjdump"
refused 'sm_80: matmul_ring_kernel has no wgmma, or no copy of the copy engine'
if "$script" program --only nothing >"$work/said" 2>&1; then fail "no kernels"; fi
grep -q 'program has no such kernels' "$work/said" || fail "the message without kernels"
mv "$work/cuobjdump" "$work/hidden"
if PATH=/usr/bin:/bin "$script" program >"$work/said" 2>&1; then fail "passed without cuobjdump"; fi
grep -q 'cuobjdump' "$work/said" || fail "the message without cuobjdump"
