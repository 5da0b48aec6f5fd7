// OpenBLAS, for --cpu-matmul blas and for the products of the emulated stages 2 and 3. It is loaded at the
// first use, which throws std::runtime_error if the library is missing or is not its OpenMP build.
#pragma once

#include <string>

#include "stage0_serial/blas/matrix_view.h"

namespace stagegpt {

class OpenBlas {
 public:
  static const OpenBlas& instance();

  // Sets the number of threads of later sgemm calls. Inside an OpenMP parallel region a call has one thread.
  void set_threads(int threads) const;
  // c (m,n) = scale · a (m,k) · b (k,n), or += with `accumulate`; rows of c are ldc elements apart.
  void sgemm(float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b, MatmulSize size,
             bool accumulate, float scale = 1) const;
  // Version and kernels, such as "OpenBLAS 0.3.21 SkylakeX".
  const std::string& description() const { return description_; }

 private:
  struct Functions;

  explicit OpenBlas(const Functions& functions);

  const Functions& functions_;
  std::string description_;
};

}  // namespace stagegpt
