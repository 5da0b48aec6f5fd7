# stagegpt_add_program_version()
#
# Builds the library program_version, which defines built_version() (common/app/version.h) and is linked by each program.
# The commit is looked up at each build.
function(stagegpt_add_program_version)
  set(processor "${STAGEGPT_ARCH}")
  if(STAGEGPT_NATIVE)
    set(processor native)
  endif()
  set(source ${CMAKE_BINARY_DIR}/version.cpp)
  add_custom_target(write_version BYPRODUCTS ${source} VERBATIM
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DOUTPUT=${source} -DNUMBER=${PROJECT_VERSION}
      "-DBUILD_TYPE=${CMAKE_BUILD_TYPE}" "-DCOMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
      "-DPROCESSOR=${processor}" -P ${CMAKE_SOURCE_DIR}/cmake/write_version.cmake
    COMMENT "Looking up the commit")
  add_library(program_version OBJECT ${source})
  target_link_libraries(program_version PRIVATE stagegpt_common)
  add_dependencies(program_version write_version)
endfunction()
