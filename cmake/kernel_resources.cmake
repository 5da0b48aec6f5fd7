# Writes what ptxas says of the kernels of some CUDA sources: registers, spills, shared memory.
#   cmake -DNVCC=… -DROOT=… -DOUTPUT=… "-DDEFINITIONS=…" "-DSOURCES=…" "-DSOURCES_90A=…" -P kernel_resources.cmake
# SOURCES are compiled for compute capability 8.0, SOURCES_90A for 9.0. Lists are separated by commas.
cmake_minimum_required(VERSION 3.25)
string(REPLACE "," ";" SOURCES "${SOURCES}")
string(REPLACE "," ";" SOURCES_90A "${SOURCES_90A}")
string(REPLACE "," ";" DEFINITIONS "${DEFINITIONS}")
list(TRANSFORM DEFINITIONS PREPEND "-D")
set(all "")
foreach(source ${SOURCES} ${SOURCES_90A})
  set(architecture sm_80)
  if(source IN_LIST SOURCES_90A)
    set(architecture sm_90a)
  endif()
  message(STATUS "ptxas: ${source}")
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 -DNDEBUG -arch=${architecture} --expt-relaxed-constexpr ${DEFINITIONS} -I${ROOT} -x cu -cubin -Xptxas -v
      ${source} -o ${OUTPUT}.cubin
    RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${text}")
  endif()
  string(APPEND all "${text}")
endforeach()
file(REMOVE ${OUTPUT}.cubin)
file(WRITE ${OUTPUT} "${all}")
