# stagegpt_add_stage(<name> [SUFFIX <suffix>] LIBRARIES <library>…)
#
# Builds <name>_train<suffix>, and so _generate, _verify and _bench: the mains of common/app, each linked with the
# stage's stage.cpp (in the calling folder) and the libraries that it wires together.
function(stagegpt_add_stage name)
  cmake_parse_arguments(arg "" "SUFFIX" "LIBRARIES" ${ARGN})
  set(stage ${name}_stage${arg_SUFFIX})
  add_library(${stage} OBJECT stage.cpp)
  target_link_libraries(${stage} PUBLIC ${arg_LIBRARIES})
  foreach(job train generate verify bench)
    set(program ${name}_${job}${arg_SUFFIX})
    add_executable(${program})
    target_link_libraries(${program} PRIVATE ${job}_main ${stage} stagegpt_common)
  endforeach()
endfunction()
