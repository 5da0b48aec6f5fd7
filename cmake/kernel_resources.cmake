# Writes what ptxas says of the kernels of some CUDA sources: registers, spills, shared memory.
#   cmake -DNVCC=… -DROOT=… -DOUTPUT=… "-DDEFINITIONS=…" "-DSOURCES=…" -P kernel_resources.cmake
# For compute capability 8.0, whose multiprocessor the emulator's report describes. Lists are separated by commas.
string(REPLACE "," ";" SOURCES "${SOURCES}")
string(REPLACE "," ";" DEFINITIONS "${DEFINITIONS}")
list(TRANSFORM DEFINITIONS PREPEND "-D")
set(all "")
foreach(source ${SOURCES})
  message(STATUS "ptxas: ${source}")
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 -DNDEBUG -arch=sm_80 --expt-relaxed-constexpr ${DEFINITIONS} -I${ROOT} -x cu -cubin -Xptxas -v
      ${source} -o ${OUTPUT}.cubin
    RESULT_VARIABLE result ERROR_VARIABLE text)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${text}")
  endif()
  string(APPEND all "${text}")
endforeach()
file(REMOVE ${OUTPUT}.cubin)
file(WRITE ${OUTPUT} "${all}")
