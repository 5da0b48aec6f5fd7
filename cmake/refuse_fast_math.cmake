# Refuses compiler flags with which arithmetic is not that of IEEE 754: NaN would not be found, and results would not repeat.
foreach(flags CMAKE_CXX_FLAGS CMAKE_CXX_FLAGS_RELEASE CMAKE_CXX_FLAGS_RELWITHDEBINFO CMAKE_CXX_FLAGS_DEBUG CMAKE_CUDA_FLAGS)
  if(" ${${flags}} " MATCHES "[ ,=](-Ofast|-ffast-math|-ffinite-math-only|-funsafe-math-optimizations|--?use_fast_math)[ ,]")
    message(FATAL_ERROR "${flags}: ${CMAKE_MATCH_1} changes the results of StageGPT, and hides NaN; leave it out")
  endif()
endforeach()
