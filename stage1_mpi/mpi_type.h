// The MPI type of a tensor's elements.
#pragma once

#include <mpi.h>

#include "common/tensor/dtype.h"

namespace stagegpt {

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
