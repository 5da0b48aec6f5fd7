// Which differences between two traces count.
#include "tools/compare/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/checkpoint/safetensors.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

struct Traced {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// The tensors of one step of a model that does not exist.
std::vector<Traced> small_step() {
  return {{"the output of h.0.attn.c_attn (linear)", {2, 2, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
          {"the output of h.0.mlp.c_fc (linear)", {2, 1, 2}, {1, 2, 3, 4}},
          {"the loss", {1}, {4}},
          {"the gradient of ln_f.weight", {2}, {3, 4}},
          {"the gradient of h.0.attn.c_attn.bias", {3}, {1, 1e-9f, 1}},
          {"the gradient of h.0.ln_1.bias", {2}, {1e-9f, 1e-9f}},
          {"the weight ln_f.weight", {2}, {1, 2}},
          {"the weight h.0.attn.c_attn.bias", {3}, {1, 2, 3}}};
}

class DivergenceTest : public testing::Test {
 protected:
  fs::path directory(const std::string& name) const {
    const fs::path path = scratch_.path() / name;
    fs::create_directories(path);
    return path;
  }
  void write(const std::string& run, const std::string& file, const std::vector<Traced>& tensors) const {
    std::vector<SafetensorsWriter::TensorInfo> announced;
    for (const Traced& tensor : tensors) {
      char number[16];
      std::snprintf(number, sizeof number, "%05d ", static_cast<int>(announced.size()));
      announced.push_back({number + tensor.name, tensor.shape});
    }
    SafetensorsWriter writer(directory(run) / file, announced);
    for (const Traced& tensor : tensors) writer.append(tensor.values);
    writer.finish();
  }
  std::optional<Divergence> compare(const TraceLimits& limits = {}) const {
    return first_divergence(directory("a"), directory("b"), limits);
  }
  // The divergence between small_step() and the same step changed by `change`.
  template <class Change>
  std::optional<Divergence> after(const Change& change) const {
    std::vector<Traced> changed = small_step();
    change(changed);
    write("a", "step_00000001.safetensors", small_step());
    write("b", "step_00000001.safetensors", changed);
    return compare();
  }
  // The divergence after `difference` has been added to one element of a tensor.
  std::optional<Divergence> after_adding(float difference, std::size_t tensor, std::size_t element) const {
    return after([&](std::vector<Traced>& step) { step[tensor].values[element] += difference; });
  }
  void expect_refused(const std::string& says) const {
    const std::string message = refusal([&] { compare(); });
    EXPECT_NE(message.find(says), std::string::npos) << message;
  }

  ScratchDirectory scratch_;
};

TEST_F(DivergenceTest, IsNoneForTheSameTensors) {
  EXPECT_FALSE(after([](auto&) {}));
}

TEST_F(DivergenceTest, NamesTheFirstTensorAndItsError) {
  const auto found = after([](std::vector<Traced>& step) {
    step[1].values[0] += 1;
    step[3].values[0] += 1;
  });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 1);
  EXPECT_EQ(found->tensor, "the output of h.0.mlp.c_fc (linear)");
  EXPECT_NEAR(found->error, 1 / std::sqrt(30.0), 1e-6);
  EXPECT_EQ(found->text(),
            "step 1: the output of h.0.mlp.c_fc (linear) differs by 1.8e-01, more than 2.0e-05");
}

TEST_F(DivergenceTest, HasALimitForEachKind) {
  const VerifyLimits limits;
  for (const double factor : {0.5, 2.0}) {
    const bool expected = factor > 1;
    const auto times = [&](double limit) { return static_cast<float>(factor * limit); };
    EXPECT_EQ(after_adding(times(limits.logits * std::sqrt(30.0)), 1, 3).has_value(), expected);
    EXPECT_EQ(after_adding(times(limits.loss * 4), 2, 0).has_value(), expected);
    EXPECT_EQ(after_adding(times(limits.gradient * 5), 3, 1).has_value(), expected);
    EXPECT_EQ(after_adding(times(TraceLimits{}.weight * std::sqrt(5.0)), 6, 1).has_value(), expected);
  }
}

// A gradient that is tiny relative to the other gradients is only rounding error. Its error is relative to a
// thousandth of the norm of all gradients.
TEST_F(DivergenceTest, MeasuresTinyGradientsByAllOfThem) {
  EXPECT_FALSE(after_adding(1e-8f, 5, 0));
  const auto found = after_adding(1e-5f, 5, 0);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->error, 1e-5 / (1e-3 * std::sqrt(9.0 + 16 + 1 + 1)), 1e-7);
}

TEST_F(DivergenceTest, MeasuresSmallLossesByANat) {
  const auto with_loss = [&](float reference, float loss) {
    std::vector<Traced> a = small_step(), b = small_step();
    a[2].values[0] = reference;
    b[2].values[0] = loss;
    write("a", "step_00000001.safetensors", a);
    write("b", "step_00000001.safetensors", b);
    return compare().has_value();
  };
  EXPECT_FALSE(with_loss(1e-3f, 1.005e-3f));
  EXPECT_TRUE(with_loss(1e-3f, 2e-3f));
  EXPECT_TRUE(with_loss(1e-3f, 1e-3f + 1.5e-5f));  // the limit is 1e-5
}

TEST_F(DivergenceTest, LeavesOutWhatSoftmaxDoesNotSee) {
  EXPECT_FALSE(after([](std::vector<Traced>& step) {
    for (const std::size_t key : {1, 4}) step[0].values[key] += 5;  // both tokens of the first sequence
    step[4].values[1] *= -7;
    step[7].values[1] *= -7;
  }));
  EXPECT_TRUE(after_adding(5, 0, 1));  // a change of one token only
  for (const std::size_t seen : {0, 2}) {
    EXPECT_TRUE(after_adding(5, 0, seen));
    EXPECT_TRUE(after_adding(5, 4, seen));
    EXPECT_TRUE(after_adding(5, 7, seen));
  }
}

// If all limits are 0, the same bits are expected, and every difference counts.
TEST_F(DivergenceTest, CountsEveryBitWhereTheSameBitsAreExpected) {
  const auto with = [&](std::size_t tensor, std::size_t element, float reference, float other) {
    std::vector<Traced> a = small_step(), b = small_step();
    a[tensor].values[element] = reference;
    b[tensor].values[element] = other;
    write("a", "step_00000001.safetensors", a);
    write("b", "step_00000001.safetensors", b);
    return compare({.computed = {.logits = 0, .loss = 0, .gradient = 0}, .weight = 0});
  };
  EXPECT_FALSE(with(1, 0, 1, 1));
  EXPECT_FALSE(with(1, 0, NAN, NAN));
  EXPECT_TRUE(with(1, 0, 0.0f, -0.0f));
  EXPECT_TRUE(with(4, 1, 1, 2));  // even a key bias, which softmax cancels
  EXPECT_TRUE(with(7, 1, 1, 2));
  const auto found = with(4, 1, 1, std::nextafter(1.0f, 2.0f));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tensor, "the gradient of h.0.attn.c_attn.bias");
  EXPECT_EQ(found->limit, 0);
  EXPECT_NEAR(found->error, 0x1p-23 / std::sqrt(3.0), 1e-12);
  EXPECT_EQ(with(1, 0, 0.0f, -0.0f)->error, std::numeric_limits<double>::min());
}

// A gradient near zero may be rounding noise, but Adam turns it into an update of full size. Such weights are
// left out of the comparison.
TEST_F(DivergenceTest, LeavesOutWhatAdamMakesOfNoise) {
  const auto with_gradient = [&](float gradient) {
    std::vector<Traced> a = small_step(), b = small_step();
    a[3].values = {5, 1e-8f};
    b[3].values = {5, gradient};
    b[6].values[1] += 1e-3f;
    write("a", "step_00000001.safetensors", a);
    write("b", "step_00000001.safetensors", b);
    // In step 2 the weights still differ by this noise, so activations computed from them differ a little.
    b[0].values[0] += 5e-3f;
    b[3].values = a[3].values;
    write("a", "step_00000002.safetensors", a);
    write("b", "step_00000002.safetensors", b);
    return compare();
  };
  EXPECT_FALSE(with_gradient(-1e-8f));
  const auto found = with_gradient(1e-8f);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step, 1);
  EXPECT_EQ(found->tensor, "the weight ln_f.weight");
  EXPECT_TRUE(after_adding(5e-3f, 0, 0));  // the weights are the same, so this counts
}

// If the weights differ by noise, tensors computed from them may differ by ten times the relative difference
// of the weights.
TEST_F(DivergenceTest, AllowsTenTimesTheDriftOfTheWeights) {
  // The limits of the loss in two steps, for a weight (1, 2) · scale whose second element is off by `scale`.
  const auto limits_of = [&](const std::vector<std::int64_t>& shape, float scale) {
    std::vector<Traced> a = small_step(), b = small_step();
    a[3].values[1] = 1e-8f;
    b[3].values[1] = -1e-8f;
    a[6] = {a[6].name, shape, {scale, 2 * scale}};
    b[6] = {b[6].name, shape, {scale, 3 * scale}};
    for (const char* step : {"step_00000001.safetensors", "step_00000002.safetensors"}) {
      write("a", step, a);
      write("b", step, b);
    }
    std::vector<double> limits;
    for (const Divergence& one : divergences(directory("a"), directory("b"), {})) {
      if (one.tensor == "the loss") limits.push_back(one.limit - VerifyLimits{}.loss);
    }
    return limits;
  };
  const auto expect_limits = [&](const std::vector<double>& limits, double second) {
    ASSERT_EQ(limits.size(), 2u);
    EXPECT_DOUBLE_EQ(limits[0], 0);
    EXPECT_NEAR(limits[1], second, 1e-6);
  };
  expect_limits(limits_of({2}, 1), 10 / std::sqrt(5.0));
  expect_limits(limits_of({1, 2}, 1e-3f), 10 / std::sqrt(5.0));
  // A small vector's elements count as 0.1.
  expect_limits(limits_of({2}, 1e-3f), 10 * 1e-3 / (0.1 * std::sqrt(2.0)));
}

TEST_F(DivergenceTest, ComparesTheSequencesThatBothHave) {
  const auto with_half = [&](float first) {
    return after([&](std::vector<Traced>& step) { step[1] = {step[1].name, {1, 1, 2}, {first, 2}}; });
  };
  EXPECT_FALSE(with_half(1));
  EXPECT_TRUE(with_half(1.5));
}

TEST_F(DivergenceTest, NamesTensorsThatAreMissing) {
  const auto found = after([](std::vector<Traced>& step) { step.erase(step.begin() + 1); });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->tensor, "the output of h.0.mlp.c_fc (linear)");
  EXPECT_EQ(found->missing_in, directory("b") / "step_00000001.safetensors");
  const auto added = after([](std::vector<Traced>& step) { step.push_back({"the weight w", {1}, {1}}); });
  ASSERT_TRUE(added);
  EXPECT_EQ(added->tensor, "the weight w");
  EXPECT_EQ(added->missing_in, directory("a") / "step_00000001.safetensors");
}

TEST_F(DivergenceTest, IsFoundWhereThereIsNaN) {
  EXPECT_TRUE(after_adding(NAN, 1, 0));
  EXPECT_TRUE(after_adding(INFINITY, 1, 0));
}

TEST_F(DivergenceTest, GoesThroughTheStepsThatBothHave) {
  for (const char* step : {"step_00000002.safetensors", "step_00000003.safetensors"}) {
    write("a", step, small_step());
    write("b", step, small_step());
  }
  std::vector<Traced> changed = small_step();
  changed[1].values[0] += 1;
  write("a", "step_00000001.safetensors", changed);
  EXPECT_FALSE(compare());
  write("b", "step_00000003.safetensors", changed);
  ASSERT_TRUE(compare());
  EXPECT_EQ(compare()->step, 3);
}

// The comparison must end without a crash for shapes that no model has.
TEST_F(DivergenceTest, EndsForAnyShape) {
  const std::vector<Traced> step = {{"the output of h.0.attn.c_attn (linear)", {2}, {1, 2}},
                                    {"the output of h.1.attn.c_attn (linear)", {1, 2, 1}, {1, 2}},
                                    {"the gradient of h.0.attn.c_attn.bias", {1, 1}, {1}},
                                    {"the gradient of h.1.attn.c_attn.bias", {2}, {1, 2}},
                                    {"the weight h.0.attn.c_attn.bias", {3}, {1, 2, 3}},
                                    {"the weight h.1.attn.c_attn.bias", {0}, {}}};
  write("a", "step_00000001.safetensors", step);
  write("b", "step_00000001.safetensors", step);
  EXPECT_FALSE(compare());
}

TEST_F(DivergenceTest, RefusesWhatCannotBeCompared) {
  expect_refused("no common step in");
  write("a", "step_00000001.safetensors", small_step());
  expect_refused("no common step in");
  std::vector<Traced> other = small_step();
  other[6] = {other[6].name, {1}, {1}};
  write("b", "step_00000001.safetensors", other);
  expect_refused("b/step_00000001.safetensors\": 'the weight ln_f.weight' has another shape");
  scratch_.write("b/step_00000001.safetensors", "nonsense");
  expect_refused("b/step_00000001.safetensors\": not safetensors");
  write("b", "step_00000001.safetensors", {small_step()[0], small_step()[0]});
  expect_refused("occurs twice");
  // Each tensor name begins with a number of five digits and a space.
  for (const std::string name : {"the loss", "about the loss", "0001 the loss", "00001the loss", "00001 "}) {
    SafetensorsWriter writer(directory("b") / "step_00000001.safetensors", {{name, {1}}});
    writer.append(std::vector<float>{1});
    writer.finish();
    expect_refused("not a trace: unexpected tensor name '" + name + "'");
  }
}

}  // namespace
}  // namespace stagegpt::test
