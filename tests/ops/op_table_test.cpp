// Every op case on every backend and dtype, compared with the plain kernels in f64. There are no plain
// kernels in bf16, so in bf16 the limit depends only on the unit roundoff.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <utility>

#include "stage0_serial/naive_backend.h"
#include "tests/ops/op_run.h"
#include "tests/support/backends.h"
#include "tests/support/difference.h"
#include "tests/support/sanitized.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

struct Target {
  const OpCase* op;
  const BackendUnderTest* backend;
  DType dtype;
};

// Whether an error limit holds. Rounded factors can change the sign of a pre-activation. The derivative of
// relu then jumps from 0 to 1 or back, so no limit holds.
bool has_limit(const OpCase& op, const BackendUnderTest& backend) {
  return backend.rounding == 0 || op.name.find("relu") == std::string::npos;
}

// Whether the op supports the dtype. Attention in bf16 supports at most 128 channels per head.
bool computes(const OpCase& op, DType dtype) { return dtype != DType::bf16 || op.name != "attention_hs129"; }

// Cases of many rows, heads or keys take long on the emulator.
bool is_large(const OpCase& op) {
  const auto has = [&](const char* part) { return op.name.find(part) != op.name.npos; };
  return has("_rows") || has("_many_heads") || has("_t260");
}

// A hand-written version of the product knows no epilogue, and of a backward no other product.
bool is_plain_product(const BackendUnderTest& backend) {
  return backend.products_only && backend.dtypes[0] == DType::f32;
}

// Versions of the product compute the ops of products alone, among them materialised attention. Their other
// kernels are those of other backends.
bool is_for(const OpCase& op, const BackendUnderTest& backend) {
  if ((backend.brief || (kSanitized && backend.name.starts_with("emulated"))) && is_large(op)) return false;
  const auto is = [&](const char* kind) { return op.name.starts_with(kind); };
  if (backend.attention_only) return is("attention_");
  if (!backend.products_only) return true;
  if (is("attention_")) {
    // Attention in bf16 has no products of these versions. In f32 they multiply many matrices at once, in
    // tiles of at most 64 rows and columns; the other kernels of materialised attention are those of
    // emulated_unfused.
    return !kSanitized && is_plain_product(backend) && !is_large(op);
  }
  // Beyond 2,100 rows only the sums of columns change, which are no products.
  return (is("linear_") && !is("linear_rows_8300")) || (is("mlp_") && !is_plain_product(backend)) ||
         is("chain_");
}

// All combinations of case, backend and dtype, for cases with at least `inputs` inputs: 2 for the test of
// unwanted gradients, which is not run on brief backends and plain products.
std::vector<Target> targets(std::size_t inputs) {
  std::vector<Target> targets;
  for (const OpCase& op : op_cases()) {
    if (op.reals.size() < inputs) continue;
    for (const BackendUnderTest& backend : backends_under_test()) {
      if (!has_limit(op, backend) || !is_for(op, backend)) continue;
      if (inputs > 1 && (backend.brief || is_plain_product(backend))) continue;
      for (const DType dtype : backend.dtypes) {
        if (computes(op, dtype)) targets.push_back({&op, &backend, dtype});
      }
    }
  }
  return targets;
}

std::ostream& operator<<(std::ostream& out, const Target& target) {
  return out << target.op->name << "_on_" << target.backend->name << '_' << target.dtype;
}
std::string test_name(const testing::TestParamInfo<Target>& info) { return concat(info.param); }

// What an op computes from the same inputs: its outputs, the gradients of its inputs, and these after a
// second backward, which adds to those of the first.
struct Results {
  std::vector<Values> outputs, gradients, accumulated;
};

Values sum(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

std::vector<Values> gradients(OpRun& run, std::size_t inputs) {
  std::vector<Values> gradients(inputs);
  for (std::size_t i = 0; i < inputs; ++i) {
    if (run.differentiable(i)) gradients[i] = run.grad(i);
  }
  return gradients;
}

Results results_of(OpRun& run, std::size_t inputs) {
  run.step(0);
  Results results = {run.outputs(), gradients(run, inputs), {}};
  run.step(1);
  results.accumulated = gradients(run, inputs);
  return results;
}

class OpTable : public testing::TestWithParam<Target> {
 protected:
  const OpCase& op() const { return *GetParam().op; }
  DType dtype() const { return GetParam().dtype; }
  DType rounded_to() const { return dtype() == DType::bf16 ? DType::bf16 : DType::f32; }

  OpRun run(Backend& backend, DType dtype, int constant = OpRun::kNone) {
    return {backend, dtype, op(), /*seed=*/0, constant, rounded_to()};
  }
  OpRun tested(int constant = OpRun::kNone) { return run(*backend_, dtype(), constant); }

  // Called so far, of a GPU's library.
  std::int64_t library_products() const { return backend_->device_work().value_or(DeviceWork{}).products; }
  bool replaces_library() const {
    return GetParam().backend->replaces_library && GetParam().backend->replaces_library();
  }

  // Of the plain kernels, kept while the tests of one case follow each other, for one backend after the
  // other.
  const Results& plain(DType dtype) {
    static const OpCase* kept_of = nullptr;
    static std::map<std::pair<DType, DType>, Results> kept;
    if (std::exchange(kept_of, &op()) != &op()) kept.clear();
    const std::pair key(dtype, rounded_to());
    if (!kept.contains(key)) kept[key] = computed_by_plain(dtype);
    return kept[key];
  }

  // In f64 nothing is accumulated: the gradients of each backward are computed alone, and added here.
  Results computed_by_plain(DType dtype) {
    const std::unique_ptr<Backend> naive = make_naive_backend();
    const std::size_t inputs = op().reals.size();
    OpRun first = run(*naive, dtype);
    if (dtype != DType::f64) return results_of(first, inputs);
    OpRun second = run(*naive, dtype);
    first.step(0);
    second.step(1);
    Results results = {first.outputs(), gradients(first, inputs), gradients(second, inputs)};
    for (std::size_t i = 0; i < inputs; ++i) {
      results.accumulated[i] = sum(results.gradients[i], results.accumulated[i]);
    }
    return results;
  }

  void expect_close(const Values& got, const Values& plain, const Values& expected, const Shape& shape,
                    const std::string& what) {
    const double plain_error = relative_error(plain, expected);
    const double limit = error_limit(plain_error, op().K, dtype(), GetParam().backend->rounding);
    EXPECT_LE(relative_error(got, expected), limit)
        << what << ": " << describe_difference(got, expected, shape, limit);
    EXPECT_LE(plain_error, plain_error_limit(dtype())) << what << " of the plain kernel";
  }

  const std::unique_ptr<Backend> backend_ = GetParam().backend->make();
};

TEST_P(OpTable, agrees_with_the_reference) {
  OpRun run = tested();
  const std::int64_t before = library_products();
  const Results got = results_of(run, op().reals.size());
  if (op().name == "linear_no_bias" && replaces_library()) {
    EXPECT_EQ(library_products(), before);
  }
  const Results& plain = this->plain(dtype() == DType::bf16 ? DType::f64 : dtype());
  const Results& expected = this->plain(DType::f64);
  for (std::size_t i = 0; i < got.outputs.size(); ++i) {
    expect_close(got.outputs[i], plain.outputs[i], expected.outputs[i], run.output_shape(i),
                 concat("output ", i));
  }
  for (std::size_t i = 0; i < op().reals.size(); ++i) {
    if (!run.differentiable(i)) continue;
    const auto expect_gradient = [&](std::vector<Values> Results::*of, const char* when) {
      expect_close((got.*of)[i], (plain.*of)[i], (expected.*of)[i], run.input_shape(i),
                   concat("gradient of input ", i, when));
    };
    expect_gradient(&Results::gradients, "");
    expect_gradient(&Results::accumulated, ", accumulated");
  }
}

using OpTableInputs = OpTable;

// In bf16 a bias's gradient may be computed in the product that computes its weight's gradient. Without that
// product, its f32 sums are added in another order. Each of the two is within the limit of an f32 sum, so
// they differ by at most twice that limit. Largest error measured on an H200: 1.8e-5 of 2.2e-5 (8,300 rows).
TEST_P(OpTableInputs, an_unwanted_gradient_changes_no_other) {
  const int inputs = static_cast<int>(op().reals.size());
  const double limit = dtype() == DType::bf16 ? 2 * error_limit(0, op().K, DType::f32) : 0;
  OpRun all = tested();
  all.step();
  for (int skipped = 0; skipped < inputs; ++skipped) {
    OpRun without = tested(skipped);
    without.step();
    for (int i = 0; i < inputs; ++i) {
      if (!without.differentiable(i)) continue;
      EXPECT_LE(relative_error(without.grad(i), all.grad(i)), limit)
          << "of input " << i << " without that of " << skipped;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTable, testing::ValuesIn(targets(1)), test_name);
INSTANTIATE_TEST_SUITE_P(Ops, OpTableInputs, testing::ValuesIn(targets(2)), test_name);

}  // namespace
}  // namespace stagegpt::test
