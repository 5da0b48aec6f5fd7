// OpenBLAS is opened by path at the first use rather than linked, for two reasons.
//   1. Debian installs several builds under one name, and its alternatives prefer the one with threads of its
//      own, which fight with OpenMP's. The path names the OpenMP build, and it is checked.
//   2. The library picks its kernels once, when it is loaded, from the processors known when it was released:
//      0.3.21 runs an Emerald Rapids on SSE3 kernels, at a quarter of its speed. OPENBLAS_CORETYPE overrides
//      the choice, if it is set before.
#include "stage0_serial/kernels/matmul_blas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "common/error.h"

namespace stagegpt::blas {
namespace {

// OpenBLAS's name for the best kernels this processor can run, or nullptr to leave the choice to the library.
const char* best_core() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
    return "SkylakeX";
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return nullptr;
}

class OpenBlas {
 public:
  static const OpenBlas& instance() {
    static const OpenBlas blas;
    return blas;
  }

  decltype(&cblas_sgemm) sgemm;
  decltype(&openblas_set_num_threads) set_num_threads;
  std::string description;

 private:
  OpenBlas() {
    if (const char* core = best_core()) setenv("OPENBLAS_CORETYPE", core, /*overwrite=*/0);
    library_ = dlopen(STAGEGPT_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) {
      throw std::runtime_error(
          concat("OpenBLAS cannot be loaded (", dlerror(), "); ./scripts/setup.sh installs it"));
    }
    find(sgemm, "cblas_sgemm");
    find(set_num_threads, "openblas_set_num_threads");
    decltype(&openblas_get_parallel) get_parallel;
    decltype(&openblas_get_config) get_config;
    decltype(&openblas_get_corename) get_corename;
    find(get_parallel, "openblas_get_parallel");
    find(get_config, "openblas_get_config");
    find(get_corename, "openblas_get_corename");
    if (get_parallel() != OPENBLAS_OPENMP) {
      throw std::runtime_error(concat(STAGEGPT_OPENBLAS, " is not the OpenMP build of OpenBLAS"));
    }
    const std::string config = get_config();  // "OpenBLAS 0.3.21 …"
    description = concat(config.substr(0, config.find(' ', config.find(' ') + 1)), ' ', get_corename());
  }

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(concat(STAGEGPT_OPENBLAS, " has no ", name));
  }

  void* library_;
};

// A factor as BLAS takes it. A view with one row may have any row stride; BLAS wants at least its columns.
struct Factor {
  Factor(MatrixView<float> view, std::int64_t columns)
      : transpose(view.column_stride == 1 ? CblasNoTrans : CblasTrans),
        ld(static_cast<blasint>(view.column_stride == 1 ? std::max(view.row_stride, columns)
                                                        : view.column_stride)) {}
  CBLAS_TRANSPOSE transpose;
  blasint ld;
};

}  // namespace

const char* description() { return OpenBlas::instance().description.c_str(); }

namespace {

void sgemm(const OpenBlas& blas, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
           MatmulSize size, bool accumulate) {
  const Factor left(a, size.k), right(b, size.n);
  blas.sgemm(CblasRowMajor, left.transpose, right.transpose, static_cast<blasint>(size.m),
             static_cast<blasint>(size.n), static_cast<blasint>(size.k), 1, a.data, left.ld, b.data, right.ld,
             accumulate ? 1.0f : 0.0f, c, static_cast<blasint>(ldc));
}

}  // namespace

void matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b,
            MatmulSize size, bool accumulate) {
  const OpenBlas& blas = OpenBlas::instance();
  blas.set_num_threads(parallel.threads());
  sgemm(blas, c, ldc, a, b, size, accumulate);
}

void reproducible_matmul(const Parallel& parallel, float* c, std::int64_t ldc, MatrixView<float> a,
                         MatrixView<float> b, MatmulSize size, bool accumulate) {
  constexpr std::int64_t kPanel = 128;
  const OpenBlas& blas = OpenBlas::instance();
  blas.set_num_threads(1);  // inside a parallel region the library has one thread anyway
  if (size.m > size.n) {
    parallel.ranges(size.m, kPanel, [&](std::int64_t m0, std::int64_t m1) {
      sgemm(blas, c + m0 * ldc, ldc, {&a(m0, 0), a.row_stride, a.column_stride}, b, {m1 - m0, size.n, size.k},
            accumulate);
    });
  } else {
    parallel.ranges(size.n, kPanel, [&](std::int64_t n0, std::int64_t n1) {
      sgemm(blas, c + n0, ldc, a, {&b(0, n0), b.row_stride, b.column_stride}, {size.m, n1 - n0, size.k},
            accumulate);
    });
  }
}

}  // namespace stagegpt::blas
