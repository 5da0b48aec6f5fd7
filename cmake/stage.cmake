# stagegpt_add_stage(<name> LIBRARIES <library>…)
#
# Builds <name>_train, <name>_generate, <name>_verify and <name>_bench: the mains of common/app, each linked with the stage's
# stage.cpp (in the calling folder) and the libraries that it wires together.
function(stagegpt_add_stage name)
  cmake_parse_arguments(arg "" "" "LIBRARIES" ${ARGN})
  add_library(${name} OBJECT stage.cpp)
  target_link_libraries(${name} PUBLIC ${arg_LIBRARIES})
  foreach(job train generate verify bench)
    add_executable(${name}_${job} ${CMAKE_SOURCE_DIR}/common/app/${job}_main.cpp)
    target_link_libraries(${name}_${job} PRIVATE ${name} stagegpt_common)
    target_compile_definitions(${name}_${job} PRIVATE STAGEGPT_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  endforeach()
endfunction()
