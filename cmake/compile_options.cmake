# Compile options of all targets. nvcc has its own options, and passes some to the host compiler.
add_library(stagegpt_options INTERFACE)

function(stagegpt_cxx_options)
  target_compile_options(stagegpt_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
function(stagegpt_cuda_options)
  target_compile_options(stagegpt_options INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${ARGN}>")
endfunction()

stagegpt_cxx_options(-Wall -Wextra -Wpedantic -Wshadow
  # Neither changes a result: errno is never read after a math call, floating-point traps are never enabled.
  # Without them sqrt and comparisons in loops are not vectorised.
  -fno-math-errno -fno-trapping-math)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Backends override some of the overloads of compute(), loops begin with STAGEGPT_UNROLL, and std::stable_sort() of GCC 12's
  # library uses what is deprecated.
  stagegpt_cxx_options(-Wno-overloaded-virtual -Wno-misleading-indentation -Wno-deprecated-declarations)
endif()
# GCC collects its own garbage so often that it takes a sixth of the time of a compilation. With these limits it takes a
# quarter to a third more memory, such as 0.69 GB instead of 0.56.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  stagegpt_cxx_options(--param=ggc-min-expand=100000 --param=ggc-min-heapsize=2000000)
endif()
# Nearly a hundred programs are linked. gold takes half the time of GNU's other linker.
include(CheckLinkerFlag)
check_linker_flag(CXX -fuse-ld=gold STAGEGPT_GOLD)
if(STAGEGPT_GOLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=gold>)
endif()
# Line numbers cost nothing, and profilers show them.
stagegpt_cuda_options(--expt-relaxed-constexpr -lineinfo -Xcompiler=-Wall,-Wextra,-Wshadow)

if(STAGEGPT_NATIVE)
  stagegpt_cxx_options(-march=native)
elseif(STAGEGPT_ARCH)
  stagegpt_cxx_options(-march=${STAGEGPT_ARCH})
endif()
if(STAGEGPT_WERROR)
  stagegpt_cxx_options(-Werror)
  stagegpt_cuda_options(-Werror=all-warnings -Xcompiler=-Werror
    # No kernel may keep variables in memory for want of registers, or because it indexes an array of them.
    -Xptxas=--warn-on-spills,--warn-on-local-memory-usage,--warning-as-error)
endif()
if(STAGEGPT_SANITIZE)
  # Without UBSan's checks at every use of a pointer, which take a third of the time to compile: AddressSanitizer sees null
  # pointers and the ends of objects as well. UBSan ends a program by a trap instead of a message, which halves the programs; with
  # ASAN_OPTIONS=handle_sigill=1, as ctest sets it, AddressSanitizer then prints the calls and their lines.
  target_compile_options(stagegpt_options INTERFACE -fsanitize=address,undefined -fsanitize-undefined-trap-on-error
    -fno-sanitize=null,object-size,pointer-overflow,vptr -fno-omit-frame-pointer)
  target_link_options(stagegpt_options INTERFACE -fsanitize=address,undefined)
endif()
if(STAGEGPT_FUZZ)
  target_compile_options(stagegpt_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(stagegpt_options INTERFACE -fsanitize=address,undefined)
endif()
