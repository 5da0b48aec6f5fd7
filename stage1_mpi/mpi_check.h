// What calls of MPI need: checks of their return codes, and arguments.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>

#include "common/tensor/dtype.h"

namespace stagegpt {

// Throws std::runtime_error, which names the call, unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char reason[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, reason, &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(reason, static_cast<std::size_t>(length)));
}

// Elements or bytes of a message: MPI's counts are int.
inline constexpr std::size_t kMessage = std::size_t{1} << 30;

// Calls f(address, count) for consecutive messages of all elements.
template <class T, class F>
void for_each_message(std::span<T> elements, const F& f) {
  for (std::size_t begin = 0; begin < elements.size(); begin += kMessage)
    f(elements.data() + begin, static_cast<int>(std::min(kMessage, elements.size() - begin)));
}

// The MPI type of a tensor's elements.
inline MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::i8:
      return MPI_INT8_T;
  }
  return MPI_DATATYPE_NULL;
}

}  // namespace stagegpt
