# Enables CUDA where its compiler is found: STAGEGPT_CUDA tells. GPU programs are no part of sanitised builds.
#
# STAGEGPT_OLDEST_ARCHITECTURE is the oldest compute capability that is compiled for, 80 for 8.0; 0 where unknown.
set(STAGEGPT_CUDA OFF)
if(STAGEGPT_SANITIZE OR STAGEGPT_FUZZ)
  return()
endif()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  find_program(nvcc nvcc PATHS /usr/local/cuda/bin NO_CACHE)
  if(nvcc)
    set(CMAKE_CUDA_COMPILER ${nvcc})
  endif()
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "No CUDA compiler: stage2_train, stage2_generate, stage2_verify and stage2_bench are left out; "
                 "their twins stage2_*_emulated, which need none, are built")
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
list(SORT architectures COMPARE NATURAL)
list(APPEND architectures 0)
list(GET architectures 0 STAGEGPT_OLDEST_ARCHITECTURE)
