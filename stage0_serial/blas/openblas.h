// OpenBLAS, which whoever multiplies matrices on the host shares. It is opened at the first use; one that is
// missing, or another build than the one with OpenMP, is a std::runtime_error.
#pragma once

#include <string>

#include "stage0_serial/blas/matrix_view.h"

namespace stagegpt {

class OpenBlas {
 public:
  static const OpenBlas& instance();

  // Of the products that follow. Inside a parallel region of OpenMP's the library has one thread anyway.
  void set_threads(int threads) const;
  // c (m,n) = scale · a (m,k) · b (k,n), added to c or not; c has rows of ldc elements.
  void sgemm(float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b, MatmulSize size,
             bool accumulate, float scale = 1) const;
  // What was loaded, such as "OpenBLAS 0.3.21 SkylakeX".
  const std::string& description() const { return description_; }

 private:
  struct Functions;

  explicit OpenBlas(const Functions& functions);

  const Functions& functions_;
  std::string description_;
};

}  // namespace stagegpt
