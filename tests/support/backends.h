// The backends on which op cases are tested. Each program of op tests is linked with one file that defines
// backends_under_test(): stage0_backends.cpp, and one for each later stage.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/backend/backend.h"

namespace stagegpt::test {

struct BackendUnderTest {
  std::string name;  // letters, digits and underscores, because it is part of a test's name
  std::function<std::unique_ptr<Backend>()> make;
  std::vector<DType> dtypes;
  bool products_only = false;   // differs from another backend only in products, which are slow
  bool attention_only = false;  // differs from another backend only in attention
  double rounding = 0;          // unit roundoff of GEMM's operands, if it is larger than that of the dtype
  bool brief = false;           // fewer cases, because another backend would make the same errors
  // Whether its own kernels, and not a library, compute products of rows of a multiple of eight elements on
  // this device; called after make(). Null: they do not, or there is no library.
  std::function<bool()> replaces_library = nullptr;

  // Whether ops other than products and attention have kernels that no other backend has.
  bool has_own_kernels() const { return !products_only && !attention_only; }
  // Whether models, and parts of ops, run on it: not on one that differs from another backend in products
  // alone, or in the order of an attention's threads.
  bool runs_models() const { return !products_only && !(attention_only && brief); }
};

// For the messages of failing tests.
inline std::ostream& operator<<(std::ostream& out, const BackendUnderTest& backend) {
  return out << backend.name;
}

const std::vector<BackendUnderTest>& backends_under_test();

}  // namespace stagegpt::test
