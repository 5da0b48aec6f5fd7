// The ladders of stage2_bench --ladder: what they compute, with which inputs, and that every version is
// right.
#include "stage2_cuda/ladders.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/tensor/half_floats.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/ladders/ladder_tensors.h"
#include "stage2_cuda/wgmma.h"

namespace stagegpt::gpu {
namespace {

std::vector<std::string> names_of_versions(const Ladder& ladder) {
  std::vector<std::string> names;
  for (const KernelVersion& version : ladder.versions) names.push_back(version.name);
  return names;
}

using Names = std::vector<std::string>;

TEST(Ladders, say_what_they_compute) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  const Ladder layernorm = make_ladder("layernorm", *backend, {.large = false, .peak = {}});
  EXPECT_EQ(layernorm.name, "layernorm (64,192)");
  EXPECT_EQ(names_of_versions(layernorm),
            (Names{"v1 thread per row", "v2 block per row", "v3 warp per row", "v4 four floats"}));
  EXPECT_EQ(layernorm.work, 2 * 4 * 64 * 192) << "bytes read and written";
  EXPECT_EQ(layernorm.unit, "GB/s");
  EXPECT_GT(layernorm.bound, 1e5) << "bytes a second: 98,304 in less than a second";
  EXPECT_EQ(layernorm.bound_name, "a copy on the device");
  EXPECT_EQ(layernorm.tolerance, 1e-5);

  const Peak peak{.flops_per_second = 3e12, .name = "made up"};
  const Ladder matmul = make_ladder("matmul", *backend, {.large = false, .peak = peak});
  EXPECT_EQ(matmul.name, "matmul (72,48) · (48,192)");
  EXPECT_EQ(names_of_versions(matmul), (Names{"v1 naive", "v2 tiled", "v3 vectorised", "cublaslt"}));
  EXPECT_EQ(matmul.work, 2.0 * 72 * 48 * 192);
  EXPECT_EQ(matmul.unit, "GFLOP/s");
  EXPECT_EQ(matmul.bound, 3e12);
  EXPECT_EQ(matmul.bound_name, "made up");
  EXPECT_EQ(matmul.tolerance, 1e-5);
  EXPECT_EQ(
      make_ladder("matmul", *backend, {.large = false, .precision = Precision::tf32, .peak = peak}).tolerance,
      2e-3);
  for (const Ladder* ladder : {&layernorm, &matmul}) EXPECT_EQ(ladder->sets, 3);
}

TEST(Ladders, have_versions_in_bf16) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({.precision = Precision::bf16});
  const LadderOptions options{.large = false,
                              .precision = Precision::bf16,
                              .peak = Peak{.flops_per_second = 3e12, .name = "made up"}};
  const Ladder matmul = make_ladder("matmul", *backend, options);
  EXPECT_EQ(
      names_of_versions(matmul),
      (why_no_wgmma().empty() ? Names{"v4 tensor cores", "v5 larger tiles", "v6 two buffers", "v7 wgmma",
                                      "v8 ring of tiles", "v9 persistent", "cublaslt"}
                              : Names{"v4 tensor cores", "v5 larger tiles", "v6 two buffers", "cublaslt"}));
  EXPECT_EQ(matmul.tolerance, 0x1p-8 + 1e-5) << "one rounding";
  const Ladder attention = make_ladder("attention", *backend, options);
  EXPECT_EQ(names_of_versions(attention),
            (Names{"v1 thread per query", "v2 block per query", "v3 tiles of keys", "v5 tensor cores"}));
  EXPECT_EQ(attention.tolerance, 2 * (0x1p-8 + 1e-5)) << "two roundings";
  EXPECT_THROW(make_ladder("layernorm", *backend, options), UserError);
}

TEST(Ladders, of_attention_count_the_keys_that_a_query_sees) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  const Ladder ladder = make_ladder("attention", *backend, {.large = false, .peak = Peak{1e12, "made up"}});
  EXPECT_EQ(ladder.name, "attention (1,72,2,32)");
  EXPECT_EQ(names_of_versions(ladder),
            (Names{"v1 thread per query", "v2 block per query", "v3 tiles of keys", "v4 flash"}));
  double keys = 0;
  for (int t = 0; t < 72; ++t) keys += t + 1;
  EXPECT_EQ(ladder.work, 2 * keys * 4 * 32)
      << "two heads; a multiplication and an addition for q·k, and for p·v";
  EXPECT_EQ(ladder.unit, "GFLOP/s");
  EXPECT_EQ(ladder.bound, 1e12);
  EXPECT_EQ(ladder.tolerance, 1e-5);
}

// 50 MB: the L2 cache of an H100.
TEST(Ladders, have_so_many_sets_that_caches_forget_them) {
  EXPECT_EQ(number_of_sets({.large = false, .peak = {}}, 1), 3);
  for (const std::size_t bytes : {std::size_t{50} << 20, std::size_t{70} << 20, std::size_t{400} << 20}) {
    const int timed = number_of_sets({}, bytes) - 1;
    EXPECT_GE(static_cast<std::size_t>(timed - 1) * bytes, std::size_t{256} << 20)
        << "between two uses of a set";
    EXPECT_LT(static_cast<std::size_t>(timed - 2) * bytes, std::size_t{256} << 20) << "no more than needed";
  }
}

TEST(Ladders, compute_some_rows_in_f64) {
  EXPECT_EQ(sampled_rows(3, 37), (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(sampled_rows(8, 2), (std::vector<std::int64_t>{0, 5}));
  const std::vector<std::int64_t> rows = sampled_rows(8192, 37);
  EXPECT_EQ(rows.size(), 38u);
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], static_cast<std::int64_t>(221 * i));
}

// Of four elements, only the first is compared.
TEST(Ladders, see_a_NaN_in_a_row_that_is_not_compared) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  const std::vector<float> whole = {2, 7, 7, 7}, torn = {2, 7, 7, std::nanf("")};
  const auto output = [&](const std::vector<float>& values) {
    return std::vector{CheckedOutput{to_device<float>(*backend, {4}, values), 1, {0}, {2.5}}};
  };
  const Ladder ladder = ladder_of("", *backend, {output(whole), output(torn)});
  EXPECT_EQ(ladder.sets, 2);
  EXPECT_DOUBLE_EQ(ladder.error(0), 0.5 / 2.5);
  EXPECT_TRUE(std::isnan(ladder.error(1)));
}

TEST(Ladders, have_other_numbers_in_each_input) {
  open_device(0);
  const std::unique_ptr<Backend> backend = make_cuda_backend({});
  RandomInputs random(*backend), again(*backend);
  const Tensor first = random.make(DType::f32, {64}), second = random.make(DType::f32, {64});
  const std::vector<float> numbers = floats_to_host(*backend, first);
  EXPECT_NE(numbers, floats_to_host(*backend, second));
  std::vector<float> rounded;
  for (const float number : numbers) rounded.push_back(float_of_bf16(bf16_of_float(number)));
  const Tensor narrow = again.make(DType::bf16, {64});
  EXPECT_EQ(narrow.dtype(), DType::bf16);
  EXPECT_EQ(floats_to_host(*backend, narrow), rounded);
}

// Every ladder, in every precision that it has.
template <class Use>
void with_all_ladders(const Use& use) {
  open_device(0);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const std::unique_ptr<Backend> backend = make_cuda_backend({.precision = precision});
    for (const char* name : {"layernorm", "matmul", "attention"}) {
      if (precision == Precision::bf16 && std::string(name) == "layernorm") continue;
      SCOPED_TRACE(concat(name, precision == Precision::bf16 ? " in bf16" : " in f32"));
      use(make_ladder(name, *backend,
                      {.large = false, .precision = precision, .peak = Peak{3e12, "made up"}}));
    }
  }
}

// If no version has written the outputs, the error is NaN. After a version has run, the error of its set is
// small, but not 0.
TEST(Ladders, see_what_is_missing_or_wrong) {
  with_all_ladders([](const Ladder& ladder) {
    const Stream stream;
    for (int set = 0; set < ladder.sets; ++set) {
      ladder.clear();
      ladder.versions[0].run(stream, set);
      synchronize(stream);
      EXPECT_GT(ladder.error(set), 0);
      EXPECT_LT(ladder.error(set), ladder.tolerance);
      EXPECT_TRUE(std::isnan(ladder.error((set + 1) % ladder.sets))) << "what was not computed";
    }
  });
}

TEST(Ladders, every_version_is_right) {
  with_all_ladders([](const Ladder& ladder) {
    const Stream stream;
    for (const KernelVersion& version : ladder.versions) {
      ladder.clear();
      for (int set = 0; set < ladder.sets; ++set) version.run(stream, set);
      synchronize(stream);
      for (int set = 0; set < ladder.sets; ++set)
        EXPECT_LE(ladder.error(set), ladder.tolerance) << version.name;
    }
  });
}

}  // namespace
}  // namespace stagegpt::gpu
