// The arithmetic of comparing traces: relative errors, noise in Adam's updates, and key biases, which softmax
// cancels.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/measure/relative_error.h"
#include "tests/support/refusal.h"
#include "tools/compare/divergence.h"
#include "tools/compare/trace_noise.h"

namespace stagegpt::test {
namespace {

using Floats = std::vector<float>;

TEST(RelativeError, IsTheNormOfTheDifferenceOverTheReferences) {
  EXPECT_EQ(norm(Floats{3, -4}), 5);
  EXPECT_EQ(norm(Floats{}), 0);
  EXPECT_DOUBLE_EQ(relative_error(Floats{3, 4}, Floats{0, 2}), std::sqrt(13.0) / 2);
  EXPECT_DOUBLE_EQ(relative_error(Floats{3, 4}, Floats{0, 2}, 1), std::sqrt(13.0) / 2);
  EXPECT_DOUBLE_EQ(relative_error(Floats{3, 4}, Floats{0, 2}, 4), std::sqrt(13.0) / 4);
  EXPECT_EQ(relative_error(Floats{0, 0}, Floats{0, 0}), 0);
  EXPECT_EQ(relative_error(Floats{0, 1}, Floats{0, 0}), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(relative_error(Floats{NAN}, Floats{1})));
}

TEST(RelativeError, OfVectorsOfDifferentSizesIsAnInternalError) {
  EXPECT_EQ(internal_error([] {
              relative_error(Floats{1}, Floats{1, 2});
            }),
            "relative error: 1 elements and 2");
}

// The weights (1, 2, 3, 4) after noise.remove_noise(), which sets noisy elements to 0.
Floats left(const AdamNoise& noise, const std::string& parameter) {
  Floats weights = {1, 2, 3, 4};
  noise.remove_noise(parameter, weights);
  return weights;
}

TEST(AdamNoise, IsWhereGradientsDifferByMoreThanAThousandth) {
  AdamNoise noise;
  noise.add_gradients("w", Floats{1.0009765625f, 1.00048828125f, 0, -1}, Floats{1, 1, 0, -1});
  EXPECT_EQ(left(noise, "w"), (Floats{1, 2, 3, 4}));  // 1/1024 = 9.8e-4 is within the limit
  noise.add_gradients("w", Floats{-1.0f, -0.998046875f, 1e-30f, 1}, Floats{-1, -1, 0, 1});
  EXPECT_EQ(left(noise, "w"), (Floats{1, 0, 0, 4}));
  noise.add_gradients("w", Floats{1, 1, 1, 1}, Floats{1, 1, 1, 1});
  EXPECT_EQ(left(noise, "w"), (Floats{1, 0, 0, 4}));  // noise of an earlier step stays marked
  EXPECT_EQ(left(noise, "v"), (Floats{1, 2, 3, 4}));
  noise.add_gradients("v", Floats{5}, Floats{1});
  EXPECT_EQ(left(noise, "v"), (Floats{0, 2, 3, 4}));
}

TEST(AdamNoise, AllowsTenTimesTheLargestDifferenceOfWeightsAfterTheirStep) {
  AdamNoise noise;
  EXPECT_EQ(noise.allowance(), 0);
  noise.add_weights(Floats{3, 4.5}, Floats{3, 4}, false);
  noise.add_weights(Floats{3, 4.25}, Floats{3, 4}, false);
  EXPECT_EQ(noise.allowance(), 0);
  noise.next_step();
  EXPECT_DOUBLE_EQ(noise.allowance(), 10 * 0.5 / 5);
  noise.add_weights(Floats{3, 4.25}, Floats{3, 4}, false);
  noise.next_step();
  EXPECT_DOUBLE_EQ(noise.allowance(), 10 * 0.25 / 5);
  noise.next_step();
  EXPECT_EQ(noise.allowance(), 0);
}

// The values of a tensor after remove_softmax_invariant().
Floats seen(const std::string& tensor, const std::vector<std::int64_t>& shape, Floats values) {
  remove_softmax_invariant(tensor, shape, values);
  return values;
}

TEST(UnseenBySoftmax, AreTheKeysPartOfTheBias) {
  const Floats six = {1, 2, 3, 4, 5, 6};
  for (const char* of : {"the weight h.0.attn.c_attn.bias", "the gradient of h.11.attn.c_attn.bias"}) {
    EXPECT_EQ(seen(of, {6}, six), (Floats{1, 2, 0, 0, 5, 6})) << of;
    EXPECT_EQ(seen(of, {1, 6}, six), six) << of;
  }
  EXPECT_EQ(seen("the weight h.0.mlp.c_fc.bias", {6}, six), six);
}

TEST(UnseenBySoftmax, IsTheMeanOfTheKeysOverASequence) {
  const std::string output = "the output of h.0.attn.c_attn (linear)";
  // Shape (2,2,3): two sequences of two tokens, one channel; each token has a query, a key and a value.
  const Floats values = {1, 2, 3, 4, 8, 6, 7, 1, 9, 10, 2, 12};
  EXPECT_EQ(seen(output, {2, 2, 3}, values), (Floats{1, -3, 3, 4, 3, 6, 7, -0.5, 9, 10, 0.5, 12}));
  // Shape (1,2,6): one sequence of two tokens, two channels.
  EXPECT_EQ(seen(output, {1, 2, 6}, values), (Floats{1, 2, -3, -3, 8, 6, 7, 1, 3, 3, 2, 12}));
  EXPECT_EQ(seen(output, {4, 3}, values), values);
  EXPECT_EQ(seen("the output of attention", {2, 2, 3}, values), values);
  EXPECT_EQ(seen("the weight h.0.attn.c_attn (linear)", {2, 2, 3}, values), values);
}

}  // namespace
}  // namespace stagegpt::test
