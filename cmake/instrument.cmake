# stagegpt_instrument(<target>)
#
# Compiles a target's kernels so that each access to memory is reported to the emulator's profile, as one access of the size
# that the source asks for, with its source line. What merges, splits or moves accesses, or copies the code around them, is off.
# Functions are inlined: an access then has the line of the kernel too.
function(stagegpt_instrument target)
  target_compile_options(${target} PRIVATE -fsanitize=thread --param=tsan-instrument-func-entry-exit=0 -Wno-tsan -g1 -gdwarf-4 -O2
    -fno-tree-vectorize -fno-tree-slp-vectorize -fno-tree-loop-distribute-patterns -fno-thread-jumps -fno-crossjumping
    -fno-tree-tail-merge -fno-ipa-icf -fno-ipa-cp-clone -fno-unswitch-loops -fno-split-loops -fno-store-merging
    --param=max-inline-insns-single=400 --param=inline-unit-growth=300
    --param=large-function-growth=1000 --param=large-function-insns=10000 --param=inline-min-speedup=5)
endfunction()
