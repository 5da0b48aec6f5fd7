# Options that every target is compiled with.
add_library(stagegpt_options INTERFACE)

target_compile_options(stagegpt_options INTERFACE -Wall -Wextra -Wpedantic -Wshadow
  # Neither changes a result: errno is never read after a math call, floating-point traps are never enabled.
  # Without them sqrt and comparisons in loops are not vectorised.
  -fno-math-errno -fno-trapping-math)

if(STAGEGPT_NATIVE)
  target_compile_options(stagegpt_options INTERFACE -march=native)
endif()
if(STAGEGPT_WERROR)
  target_compile_options(stagegpt_options INTERFACE -Werror)
endif()
if(STAGEGPT_SANITIZE)
  target_compile_options(stagegpt_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_link_options(stagegpt_options INTERFACE -fsanitize=address,undefined)
endif()
if(STAGEGPT_FUZZ)
  target_compile_options(stagegpt_options INTERFACE -fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(stagegpt_options INTERFACE -fsanitize=address,undefined)
endif()
