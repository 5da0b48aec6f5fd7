# A toolchain file: for Debian arm64, with the compiler of g++-aarch64-linux-gnu. STAGEGPT_ARM64_ROOT, a variable of the environment, is
# the root file system of a Debian arm64 that has the packages of scripts/setup.sh. scripts/arm64.sh makes one.
set(root $ENV{STAGEGPT_ARM64_ROOT})
if(NOT EXISTS ${root}/usr/include/gtest)
  message(FATAL_ERROR "STAGEGPT_ARM64_ROOT: expected the root file system of a Debian arm64, got '${root}'; see scripts/arm64.sh")
endif()
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_SYSROOT ${root})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# FindMPI would ask a compiler wrapper of that system.
set(MPI_CXX_HEADER_DIR ${root}/usr/lib/aarch64-linux-gnu/openmpi/include)
set(MPI_CXX_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${root}/usr/lib/aarch64-linux-gnu/openmpi/lib/libmpi.so)
