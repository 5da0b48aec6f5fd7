# stagegpt_add_stage(<name> [SUFFIX <suffix>] [EXCLUDE_FROM_ALL] LIBRARIES <library>…)
#
# Builds <name>_train<suffix>, and likewise _generate, _evaluate, _inspect, _verify and _bench: each main of common/app,
# tools/inspect and tools/bench, linked with the stage's stage.cpp (in the calling folder) and with the libraries.
# EXCLUDE_FROM_ALL: only when they are asked for.
function(stagegpt_add_stage name)
  cmake_parse_arguments(arg "EXCLUDE_FROM_ALL" "SUFFIX" "LIBRARIES" ${ARGN})
  set(stage ${name}_stage${arg_SUFFIX})
  set(exclude "")
  if(arg_EXCLUDE_FROM_ALL)
    set(exclude EXCLUDE_FROM_ALL)
  endif()
  add_library(${stage} OBJECT ${exclude} stage.cpp)
  target_link_libraries(${stage} PUBLIC ${arg_LIBRARIES})
  foreach(job train generate evaluate inspect verify bench)
    set(program ${name}_${job}${arg_SUFFIX})
    add_executable(${program} ${exclude})
    target_link_libraries(${program} PRIVATE ${job}_main ${stage} stage_flags program_version stagegpt_common)
  endforeach()
endfunction()

# stagegpt_add_stage_flags()
#
# Builds the library stage_flags, which defines stage_flags() (common/app/stage.h): the names in flags.txt of every
# stage's folder, also of stages that are not built.
function(stagegpt_add_stage_flags)
  file(GLOB lists CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/stage[0-9]_*/flags.txt)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${lists})
  set(rows "")
  foreach(list IN LISTS lists)
    string(REGEX REPLACE ".*/stage([0-9])_[^/]*/flags.txt" "\\1" stage ${list})
    file(STRINGS ${list} flags REGEX "^--")
    foreach(flag IN LISTS flags)
      string(APPEND rows "    {\"${flag}\", ${stage}},\n")
    endforeach()
  endforeach()
  set(source ${CMAKE_BINARY_DIR}/stage_flags.cpp)
  file(CONFIGURE OUTPUT ${source} @ONLY CONTENT [[
// Written by cmake/stage.cmake from the stages' flags.txt.
#include "common/app/stage.h"

namespace stagegpt {

std::span<const StageFlag> stage_flags() {
  static constexpr StageFlag kFlags[] = {
@rows@  };
  return kFlags;
}

}  // namespace stagegpt
]])
  add_library(stage_flags OBJECT ${source})
  target_link_libraries(stage_flags PUBLIC stagegpt_common)
endfunction()
