# stagegpt_precompile(<target>… [WITH <name>])
#
# Has the compiler read the standard library's headers once for all of these targets. It takes half a second less for each file.
# The project's own headers are not among them: a file that does not include one that it uses is still found. One that does not
# include a header of the standard library is found with CMAKE_DISABLE_PRECOMPILE_HEADERS (.github/workflows/ci.yml). <name> is a
# library of stagegpt_add_precompiled_headers() whose options the targets have.
function(stagegpt_precompile)
  cmake_parse_arguments(arg "" "WITH" "" ${ARGN})
  if(NOT arg_WITH)
    set(arg_WITH precompiled)
  endif()
  foreach(target IN LISTS arg_UNPARSED_ARGUMENTS)
    target_precompile_headers(${target} REUSE_FROM ${arg_WITH})
  endforeach()
endfunction()

# stagegpt_add_precompiled_headers(<name> LIBRARIES <library>… [HEADERS <header>…])
#
# Compiles the standard library's headers, and <header>…, with the options of the libraries.
function(stagegpt_add_precompiled_headers name)
  cmake_parse_arguments(arg "" "" "LIBRARIES;HEADERS" ${ARGN})
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "// A library has at least one file.\n")
  add_library(${name} OBJECT ${source})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES})
  target_precompile_headers(${name} PRIVATE <algorithm> <array> <chrono> <cmath> <cstdint> <cstdio> <cstring> <filesystem> <fstream>
    <functional> <iostream> <map> <memory> <optional> <set> <span> <sstream> <string> <string_view> <utility> <vector>
    ${arg_HEADERS})
endfunction()
