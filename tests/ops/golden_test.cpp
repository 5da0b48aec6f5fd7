// Comparison with the golden GPT-2 models of tests/golden, computed by PyTorch: logits, loss, all gradients,
// and optimizer steps with three settings of AdamW.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/tensor_files.h"
#include "common/io/file.h"
#include "common/measure/verify.h"
#include "common/model/gpt2.h"
#include "tests/support/backends.h"
#include "tests/support/sanitized.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt {
namespace {

struct Golden {
  explicit Golden(const std::string& name)
      : model_file(path(name + ".bin"), "--model"),
        state_file(path(name + "_debug_state.bin"), "--state"),
        model(parse_llmc_model(model_file.bytes(), "--model")),
        state(parse_llmc_state(state_file.bytes(), model.config, "--state")),
        json(nlohmann::json::parse(std::ifstream(path(name + ".json")))) {}

  static std::string path(const std::string& file) { return STAGEGPT_SOURCE_DIR "/tests/golden/" + file; }

  MappedFile model_file, state_file;
  ModelFile model;
  LlmcState state;
  nlohmann::json json;
};

struct GoldenTarget {
  const char* model;
  const test::BackendUnderTest* backend;
  DType dtype;
};

std::vector<GoldenTarget> targets(const std::function<bool(const GoldenTarget&)>& wanted) {
  std::vector<GoldenTarget> targets;
  for (const char* model : {"tiny", "one"}) {
    for (const test::BackendUnderTest& backend : test::backends_under_test()) {
      for (const DType dtype : backend.dtypes) targets.push_back({model, &backend, dtype});
    }
  }
  std::erase_if(targets, std::not_fn(wanted));
  return targets;
}
bool is_single(const GoldenTarget& target) { return target.dtype != DType::f64; }
// Steps of a training. Under the sanitizers they take long on the emulator, and not all of its backends have
// kernels of their own.
bool is_quick(const GoldenTarget& target) {
  return target.backend->runs_models() && !(test::kSanitized && target.backend->brief);
}

std::ostream& operator<<(std::ostream& out, const GoldenTarget& target) {
  return out << target.model << "_on_" << target.backend->name << '_' << target.dtype;
}

class GoldenModel : public testing::TestWithParam<GoldenTarget> {
 protected:
  DType dtype() const { return GetParam().dtype; }
  // Of a product's factors.
  double rounding() const { return std::max(test::unit_roundoff(dtype()), GetParam().backend->rounding); }
  bool rounds_to_bf16() const { return rounding() >= test::unit_roundoff(DType::bf16); }
  // The limit for f32, or a larger limit if factors of products are rounded to TF32 or bf16.
  double limit(double f32) const {
    if (rounds_to_bf16()) return test::kBf16ModelLimit;
    return rounding() >= test::kTf32Roundoff ? test::kTf32ModelLimit : f32;
  }

  Golden golden{GetParam().model};
  std::unique_ptr<Backend> backend = GetParam().backend->make();
  SelfCommunicator alone;
};

TEST_P(GoldenModel, LogitsLossAndGradientsAgree) {
  const VerifyReport report = verify(*backend, alone, golden.model, golden.state, {.activations = dtype()});
  EXPECT_LE(report.logits.error, limit(1e-6));
  EXPECT_LE(report.loss.error, limit(1e-6));
  for (const auto& row : report.gradients) EXPECT_LE(row.error, limit(2e-6)) << row.name;
}

// Logits, loss or gradients of the reference that are twice as large: half of them is missing. How errors are
// measured does not depend on the backend.
TEST(VerifyReport, HasErrorsRelativeToTheReference) {
  const Golden golden("tiny");
  const std::unique_ptr<Backend> backend = test::backends_under_test()[0].make();
  SelfCommunicator alone;
  const auto twice = [](std::span<const float> values) {
    std::vector<float> doubled(values.begin(), values.end());
    for (float& value : doubled) value *= 2;
    return doubled;
  };
  const std::vector<float> logits = twice(golden.state.logits), grads = twice(golden.state.grads);
  LlmcState other = golden.state;
  other.logits = logits;
  other.grads = grads;
  other.loss *= 2;
  const VerifyReport report = verify(*backend, alone, golden.model, other, {});
  EXPECT_NEAR(report.logits.error, 0.5, 1e-6);
  EXPECT_NEAR(report.loss.error, 0.5, 1e-6);
  for (const auto& row : report.gradients) EXPECT_NEAR(row.error, 0.5, 2e-6) << row.name;
  EXPECT_FALSE(report.passed());
}

// Trains the golden model with the optimizer settings of `run`, in any dtype.
struct GoldenRun {
  GoldenRun(Backend& be, const Gpt2Config& config, const nlohmann::json& run, DType dtype, Tensor sample_ids,
            Tensor sample_targets)
      : backend(be),
        model(be, config, statistics_dtype(dtype), /*arena_parts=*/1, Purpose::training, dtype),
        optimizer(be, model.parameters(),
                  {.beta1 = run["beta1"],
                   .beta2 = run["beta2"],
                   .eps = run["eps"],
                   .weight_decay = run["weight_decay"],
                   .grad_clip = run["grad_clip"]}),
        ids(std::move(sample_ids)),
        targets(std::move(sample_targets)) {}

  const ParameterTable& table() const { return model.parameters().table(); }

  void load(const ParameterValues& values) {
    for (std::size_t i = 0; i < table().size(); ++i) {
      const std::vector<float> weights = test::elements_of(values, table(), i);
      test::set_values(backend, model.parameters().weights().slice(table()[i].offset, table()[i].shape),
                       test::Values(weights.begin(), weights.end()));
    }
    model.parameters().update_shadow();
  }

  // Returns the loss before the update.
  double step(double learning_rate, std::int64_t step) {
    model.parameters().clear_grads();
    Tape tape(backend);
    const Var loss = model.loss(tape, ids, targets);
    tape.backward(loss);
    optimizer.measure_norms(model.parameters());
    optimizer.set_step(learning_rate, step);
    optimizer.update(model.parameters());
    return test::to_value(backend, loss.value());
  }

  // Before clipping.
  double grad_norm() const { return std::sqrt(test::to_value(backend, optimizer.squared_norm())); }

  Backend& backend;
  Gpt2 model;
  AdamW optimizer;
  Tensor ids, targets;
};

using GoldenSteps = GoldenModel;

// The norms of the weights are compared only in f64. The exact gradient of the key biases is zero, and in
// other dtypes Adam amplifies its rounding errors. Backends that have the optimizer's kernels in common with
// another one take the first steps.
TEST_P(GoldenSteps, Agree) {
  const bool f64 = dtype() == DType::f64;
  const test::BackendUnderTest& tested = *GetParam().backend;
  const std::size_t most = tested.brief || tested.attention_only ? 4 : 10;
  for (const auto& run : golden.json["runs"]) {
    GoldenRun ours(*backend, golden.model.config, run, dtype(),
                   to_device(*backend, {golden.state.B, golden.state.T}, golden.state.ids),
                   to_device(*backend, {golden.state.B, golden.state.T}, golden.state.targets));
    ours.load(golden.model.values);
    for (std::size_t step = 0; step < std::min(most, run["losses"].size()); ++step) {
      const double loss = run["losses"][step], norm = run["gradient_norms"][step];
      EXPECT_NEAR(ours.step(run["learning_rate"], static_cast<std::int64_t>(step)), loss,
                  (f64 ? 1e-8 : limit(1e-5)) * loss)
          << step;
      // At this rate the errors of TF32 grow to 40 times those of the first step, and those of bf16 likewise.
      if (rounds_to_bf16() && run["learning_rate"] > 0.002 && step >= 6) continue;
      EXPECT_NEAR(ours.grad_norm(), norm, (f64 ? 1e-8 : limit(1e-4)) * norm) << step;
    }
    const Parameters& parameters = ours.model.parameters();
    for (const Parameter& row : parameters.table().rows()) {
      if (!f64) continue;
      const auto w = test::to_values(*backend, parameters.weights().slice(row.offset, row.shape));
      const double expected = run["parameter_norms"][row.name];
      EXPECT_NEAR(std::sqrt(std::inner_product(w.begin(), w.end(), w.begin(), 0.0)), expected,
                  1e-8 * expected)
          << row.name;
    }
  }
}

// A model with an untied head, another n_inner, another epsilon, and attention scaled by the layer, from
// Hugging Face's files.
class UntiedModel : public GoldenModel {
 protected:
  static std::string path(const char* file) { return Golden::path("hugging_face/") + file; }

  const ModelFile file = read_hugging_face(path("untied"), "--model");
  const MappedFile gradients{path("untied_gradients.safetensors"), "gradients"};
  const nlohmann::json json = nlohmann::json::parse(std::ifstream(path("logits.json")));
  const std::vector<std::int32_t> all_ids = json["ids"];

  // (1,T): all ids but the last (first = 0), or all but the first (first = 1).
  Tensor tokens(std::size_t first) const {
    const auto part = std::span(all_ids).subspan(first, all_ids.size() - 1);
    return to_device<std::int32_t>(*backend, {1, std::ssize(part)}, part);
  }
};

using UntiedSteps = UntiedModel;

// Parameters that are not trained stay as they are, and count in no norm. The others learn as in PyTorch.
TEST_P(UntiedSteps, WithFrozenParametersAgree) {
  const nlohmann::json run = json["steps"]["untied"];
  Gpt2Config config = file.config;
  config.frozen = run["freeze"];
  GoldenRun ours(*backend, config, run, dtype(), tokens(0), tokens(1));
  ours.load(file.values);
  const Tensor& weights = ours.model.parameters().weights();
  const test::Values before = test::to_values(*backend, weights);
  const bool f64 = dtype() == DType::f64;
  for (std::size_t step = 0; step < run["losses"].size(); ++step) {
    const double loss = run["losses"][step], norm = run["gradient_norms"][step];
    EXPECT_NEAR(ours.step(run["learning_rate"], static_cast<std::int64_t>(step)), loss,
                (f64 ? 1e-8 : limit(1e-5)) * loss)
        << step;
    EXPECT_NEAR(ours.grad_norm(), norm, (f64 ? 1e-8 : limit(1e-4)) * norm) << step;
  }
  const test::Values after = test::to_values(*backend, weights);
  for (const Parameter& row : ours.table().rows()) {
    const auto begin = row.offset, end = begin + row.arena_shape().numel();
    EXPECT_EQ(std::equal(before.begin() + begin, before.begin() + end, after.begin() + begin), !row.trained)
        << row.name;
  }
}

TEST_P(UntiedModel, HasTheLossAndGradientsOfTransformers) {
  Gpt2 model(*backend, file.config, DType::f32, /*arena_parts=*/1, Purpose::training, dtype());
  load_weights(*backend, model.parameters(), file.values);
  Parameters& parameters = model.parameters();
  parameters.update_shadow();
  Tape tape(*backend);
  parameters.clear_grads();
  const Var loss = model.loss(tape, tokens(0), tokens(1));
  tape.backward(loss);
  parameters.finish_grads();

  const double expected_loss = json["losses"]["untied"];
  EXPECT_NEAR(test::to_value(*backend, loss.value()), expected_loss, limit(1e-6) * expected_loss);
  const ParameterTable& table = parameters.table();
  const SafetensorsViews views = parse_safetensors(gradients.bytes());
  const ParameterValues expected = safetensors_values(table, views, "");
  ASSERT_EQ(table[table.size() - 1].name, "lm_head.weight");
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::vector<float> values = test::elements_of(expected, table, i);
    const auto got = test::to_values(*backend, parameters.grads().slice(table[i].offset, table[i].shape));
    EXPECT_LE(test::relative_error(got, test::Values(values.begin(), values.end())), limit(2e-6))
        << table[i].name;
  }
}

bool is_single_tiny(const GoldenTarget& target) {
  return is_single(target) && std::string_view(target.model) == "tiny";
}

bool is_quick_tiny(const GoldenTarget& target) {
  return is_quick(target) && std::string_view(target.model) == "tiny";
}

std::string test_name(const testing::TestParamInfo<GoldenTarget>& info) { return concat(info.param); }

INSTANTIATE_TEST_SUITE_P(Ops, GoldenModel, testing::ValuesIn(targets(is_single)), test_name);
INSTANTIATE_TEST_SUITE_P(Ops, UntiedModel, testing::ValuesIn(targets(is_single_tiny)), test_name);
INSTANTIATE_TEST_SUITE_P(Ops, UntiedSteps, testing::ValuesIn(targets(is_quick_tiny)), test_name);
INSTANTIATE_TEST_SUITE_P(Ops, GoldenSteps, testing::ValuesIn(targets(is_quick)), test_name);

}  // namespace
}  // namespace stagegpt
