// OpenBLAS is not linked but loaded by path at the first use, for two reasons.
//   1. Debian installs several builds under one name. Its default is the pthreads build, whose threads
//      compete with those of OpenMP. The path names the OpenMP build, and the constructor checks it.
//   2. OpenBLAS selects its kernels when it is loaded, among the processors known at its release: 0.3.21 uses
//      SSE3 kernels on Emerald Rapids, at a quarter of the speed. The variable OPENBLAS_CORETYPE overrides
//      the selection if it is set before loading.
#include "stage0_serial/blas/openblas.h"

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>

#include "common/base/error.h"
#include "common/system/instruction_sets.h"

namespace stagegpt {
namespace {

// OpenBLAS's name of the fastest kernels that this processor can run; nullptr: let OpenBLAS choose.
const char* best_core() {
  if (processor_has_avx512()) return "SkylakeX";
  if (processor_has_avx2()) return "Haswell";
  return nullptr;
}

void* open_library() {
  if (const char* core = best_core()) setenv("OPENBLAS_CORETYPE", core, /*overwrite=*/0);
  void* const library = dlopen(STAGEGPT_OPENBLAS, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw std::runtime_error(
        concat("OpenBLAS cannot be loaded (", dlerror(), "); ./scripts/setup.sh installs it"));
  }
  return library;
}

// An operand in BLAS's terms. A view with one row may have any row stride, but BLAS requires that the leading
// dimension is at least the number of columns.
struct Factor {
  Factor(MatrixView<float> view, std::int64_t columns)
      : transpose(view.column_stride == 1 ? CblasNoTrans : CblasTrans),
        ld(static_cast<blasint>(view.column_stride == 1 ? std::max(view.row_stride, columns)
                                                        : view.column_stride)) {}
  CBLAS_TRANSPOSE transpose;
  blasint ld;
};

}  // namespace

// The functions of the library that are used.
struct OpenBlas::Functions {
  Functions() : library(open_library()) {
    find(sgemm, "cblas_sgemm");
    find(set_num_threads, "openblas_set_num_threads");
    find(get_parallel, "openblas_get_parallel");
    find(get_config, "openblas_get_config");
    find(get_corename, "openblas_get_corename");
  }

  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    if (function == nullptr) throw std::runtime_error(concat(STAGEGPT_OPENBLAS, " has no ", name));
  }

  void* library;
  decltype(&cblas_sgemm) sgemm;
  decltype(&openblas_set_num_threads) set_num_threads;
  decltype(&openblas_get_parallel) get_parallel;
  decltype(&openblas_get_config) get_config;
  decltype(&openblas_get_corename) get_corename;
};

const OpenBlas& OpenBlas::instance() {
  static const Functions functions;
  static const OpenBlas blas(functions);
  return blas;
}

OpenBlas::OpenBlas(const Functions& functions) : functions_(functions) {
  if (functions.get_parallel() != OPENBLAS_OPENMP) {
    throw std::runtime_error(concat(
        STAGEGPT_OPENBLAS, " is not the OpenMP build of OpenBLAS; ./scripts/setup.sh installs that build"));
  }
  const std::string config = functions.get_config();  // "OpenBLAS 0.3.21 …"
  const std::string version = config.substr(0, config.find(' ', config.find(' ') + 1));
  description_ = concat(version, ' ', functions.get_corename());
}

void OpenBlas::set_threads(int threads) const { functions_.set_num_threads(threads); }

void OpenBlas::sgemm(float* c, std::int64_t ldc, MatrixView<float> a, MatrixView<float> b, MatmulSize size,
                     bool accumulate, float scale) const {
  const Factor left(a, size.k), right(b, size.n);
  functions_.sgemm(CblasRowMajor, left.transpose, right.transpose, static_cast<blasint>(size.m),
                   static_cast<blasint>(size.n), static_cast<blasint>(size.k), scale, a.data, left.ld, b.data,
                   right.ld, accumulate ? 1.0f : 0.0f, c, static_cast<blasint>(ldc));
}

}  // namespace stagegpt
