# Enables CUDA if nvcc is found, and sets STAGEGPT_CUDA. GPU programs are not built with sanitizers.
#
# STAGEGPT_FOR_9_0 says whether kernels for compute capability 9.0 alone (H100, H200) are compiled.
# STAGEGPT_OLDEST_ARCHITECTURE is the lowest compute capability that is compiled for, 80 for 8.0; 0 if unknown.
set(STAGEGPT_CUDA OFF)
option(STAGEGPT_NVCC "Build programs for GPUs where nvcc is found" ON)
if(NOT STAGEGPT_NVCC OR STAGEGPT_SANITIZE OR STAGEGPT_FUZZ)
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # it may have been installed since the last configuration
  find_program(nvcc nvcc PATHS /usr/local/cuda/bin NO_CACHE)
  if(nvcc AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${nvcc})
  endif()
  include(CheckLanguage)
  check_language(CUDA)  # rejects a compiler that does not work
endif()
set(why "No CUDA compiler")
if(CMAKE_CUDA_COMPILER)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" version "${version}")
  if(CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12)
    set(why "")
  else()
    set(why "${CMAKE_CUDA_COMPILER} is not nvcc 12 or newer, which C++20 requires")
  endif()
endif()
if(why)
  message(STATUS "${why}: stage2_train, stage2_generate, stage2_verify and stage2_bench are not built; "
                 "the stage2_*_emulated programs, which do not need it, are")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES "80-real;90" CACHE STRING
    "What to compile for: A100 and its successors, H100 and H200, and what is newer when it is loaded")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)
set(STAGEGPT_CUDA ON)

set(architectures ${CMAKE_CUDA_ARCHITECTURES})
if(architectures STREQUAL "native")
  set(architectures ${CMAKE_CUDA_ARCHITECTURES_NATIVE})
endif()
string(REGEX MATCHALL "[0-9]+" architectures "${architectures}")  # no suffix: 90 of 90a-real
set(STAGEGPT_FOR_9_0 OFF)
# cuda/tensor_map.cpp needs 12.5. CI compiles for 8.0, and these kernels.
if((90 IN_LIST architectures OR STAGEGPT_THOROUGH) AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.5)
  set(STAGEGPT_FOR_9_0 ON)
endif()
if(CMAKE_CUDA_ARCHITECTURES MATCHES "(^|;)7[0-9](-virtual)?(;|$)")
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES: give 75-real: a newer GPU would compile PTX of 7.5 for itself, and that code has no TF32 "
                      "and no bf16")
endif()
list(SORT architectures COMPARE NATURAL)
list(APPEND architectures 0)
list(GET architectures 0 STAGEGPT_OLDEST_ARCHITECTURE)
if(STAGEGPT_OLDEST_ARCHITECTURE GREATER 0 AND STAGEGPT_OLDEST_ARCHITECTURE LESS 75)
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES: ${STAGEGPT_OLDEST_ARCHITECTURE}: the kernels need instructions of compute "
                      "capability 7.5 (T4), and for TF32 and bf16 of 8.0 (A100); give 75 or more")
endif()
