// Compares gradients of the whole model with central differences in f64, at several elements of every
// parameter. The step and the expected error are explained at kDifferenceStep in tolerance.h.
#include <gtest/gtest.h>

#include <algorithm>

#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kB = 2, kT = 7, kVocabulary = 101;

struct Variant {
  Activation activation;
  double dropout;
  Recompute recompute = Recompute::none;
};

std::ostream& operator<<(std::ostream& out, const Variant& variant) {
  out << name_of(variant.activation) << (variant.dropout > 0 ? "_with_dropout" : "");
  return variant.recompute == Recompute::none ? out : out << "_recomputed_" << name_of(variant.recompute);
}

class ModelGradient : public testing::TestWithParam<Variant> {
 protected:
  // The weights are larger than at the start of a training, where the loss hardly depends on them.
  ModelGradient() {
    for (std::size_t i = 0; i < table().size(); ++i) {
      values_.push_back(random_values(1, static_cast<std::uint32_t>(i), table()[i].shape.numel(), 0.3,
                                      table()[i].init_mean));
      values_.back().resize(static_cast<std::size_t>(table()[i].arena_shape().numel()));
      set_values(*backend_, var(i).value(), values_.back());
    }
  }

  const ParameterTable& table() const { return model_.parameters().table(); }
  const Var& var(std::size_t i) const { return model_.parameters().var(i); }
  Var loss(Tape& tape) const {
    return model_.loss(tape, ids_, targets_,
                       {.dropout = DropoutPosition{3, 5, 8}, .recompute = GetParam().recompute});
  }

  double loss_at(std::size_t parameter, std::size_t element, double offset) {
    Values values = values_[parameter];
    values[element] += offset;
    set_values(*backend_, var(parameter).value(), values);
    Tape tape(*backend_, Tape::Mode::inference);
    const double value = to_value(*backend_, loss(tape).value());
    set_values(*backend_, var(parameter).value(), values_[parameter]);
    return value;
  }

  // The element with the largest gradient, and kRandom random elements, which may be padding.
  static std::vector<std::size_t> elements_to_try(const Values& grad, std::uint32_t stream) {
    constexpr std::size_t kRandom = 5;
    auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
    std::vector<std::size_t> elements = {
        static_cast<std::size_t>(std::max_element(grad.begin(), grad.end(), smaller) - grad.begin())};
    for (std::size_t i = 0; i < kRandom; ++i)
      elements.push_back(random_word({2, stream, 0}, i) % grad.size());
    return elements;
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
  Gpt2 model_{*backend_,
              {.vocab_size = kVocabulary,
               .block_size = 8,
               .n_layer = 2,
               .n_head = 3,
               .n_embd = 12,
               .activation = GetParam().activation,
               .dropout = GetParam().dropout},
              DType::f64};
  std::vector<Values> values_;  // the values of each parameter, with padding
  const Tensor ids_ = to_tensor(*backend_, {kB, kT}, random_ids(1, 1000, kB* kT, kVocabulary));
  const Tensor targets_ = to_tensor(*backend_, {kB, kT}, random_ids(1, 1001, kB* kT, kVocabulary));
};

TEST_P(ModelGradient, backward_is_the_derivative_of_the_loss) {
  Tape tape(*backend_);
  tape.backward(loss(tape));
  for (std::size_t i = 0; i < table().size(); ++i) {
    const Values grad = to_values(*backend_, var(i).grad());
    Values analytic, numeric;
    for (const std::size_t element : elements_to_try(grad, static_cast<std::uint32_t>(i))) {
      analytic.push_back(grad[element]);
      numeric.push_back((loss_at(i, element, kDifferenceStep) - loss_at(i, element, -kDifferenceStep)) /
                        (2 * kDifferenceStep));
    }
    const double error = relative_error(numeric, analytic);
    EXPECT_LE(error, kGradientCheckLimit) << table()[i].name;
    RecordProperty(concat("error_", i), concat(error));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, ModelGradient,
                         testing::Values(Variant{Activation::gelu_new, 0}, Variant{Activation::gelu, 0},
                                         Variant{Activation::relu, 0}, Variant{Activation::gelu_new, 0.2},
                                         Variant{Activation::relu, 0.2},
                                         Variant{Activation::gelu_new, 0.2, Recompute::gelu},
                                         Variant{Activation::gelu_new, 0.2, Recompute::block}),
                         [](const auto& row) { return concat(row.param); });

}  // namespace
}  // namespace stagegpt::test
