// The golden GPT-2 of tests/golden, made by PyTorch: logits, loss, every gradient, and optimizer steps under
// three settings of AdamW.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "common/file.h"
#include "common/train/verify.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/tensors.h"

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
  LlmcModel model;
  LlmcState state;
  nlohmann::json json;
};

std::unique_ptr<Backend> make_backend(const std::string& name) {
  if (name == "naive") return make_naive_backend();
  return make_cpu_backend(2, *cpu_matmul_named(name));
}

class GoldenModel : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  Golden golden{std::get<0>(GetParam())};
  std::unique_ptr<Backend> backend = make_backend(std::get<1>(GetParam()));
};

TEST_P(GoldenModel, LogitsLossAndGradientsAgree) {
  const VerifyReport report = verify(*backend, golden.model, golden.state, 0, 1e-4, {});
  EXPECT_LE(report.logits.error, 1e-6);
  EXPECT_LE(report.loss.error, 1e-6);
  for (const auto& row : report.gradients) EXPECT_LE(row.error, 2e-6) << row.name;
}

// What an optimizer step needs of the golden model, in either dtype.
struct GoldenRun {
  GoldenRun(Backend& be, const Golden& golden, const nlohmann::json& run, DType dtype)
      : backend(be),
        model(be, golden.model.config, dtype),
        optimizer(be, model.parameters(),
                  {.beta1 = run["beta1"],
                   .beta2 = run["beta2"],
                   .eps = run["eps"],
                   .weight_decay = run["weight_decay"],
                   .grad_clip = run["grad_clip"]}),
        ids(to_device(be, {golden.state.B, golden.state.T}, golden.state.ids)),
        targets(to_device(be, ids.shape(), golden.state.targets)) {
    const ParameterTable& table = model.parameters().table();
    const ParameterValues values = values_in(golden.model, table);
    for (std::size_t i = 0; i < table.size(); ++i) {
      std::vector<float> weights = test::elements_of(values, table, i);
      weights.resize(static_cast<std::size_t>(table[i].arena_shape().numel()));  // padding is zero
      test::set_values(be, model.parameters().var(i).value(), test::Values(weights.begin(), weights.end()));
    }
  }

  // The loss before the update.
  double step(double learning_rate, std::int64_t step) {
    model.parameters().clear_grads();
    Tape tape(backend);
    const Var loss = model.loss(tape, ids, targets);
    tape.backward(loss);
    optimizer.measure_norm(model.parameters());
    optimizer.update(model.parameters(), learning_rate, step);
    return test::to_value(backend, loss.value());
  }

  Backend& backend;
  Gpt2 model;
  AdamW optimizer;
  Tensor ids, targets;
};

TEST_P(GoldenModel, OptimizerStepsAgree) {
  for (const auto& run : golden.json["runs"]) {
    GoldenRun ours(*backend, golden, run, DType::f32);
    for (std::size_t step = 0; step < run["losses"].size(); ++step) {
      const double loss = run["losses"][step], norm = run["gradient_norms"][step];
      EXPECT_NEAR(ours.step(run["learning_rate"], static_cast<std::int64_t>(step)), loss, 1e-5 * loss)
          << step;
      EXPECT_NEAR(ours.optimizer.grad_norm(), norm, 1e-4 * norm) << step;
    }
  }
}

// In f64, where even the bias of the keys agrees: its gradient is zero but for rounding, which Adam blows up.
TEST(GoldenModelF64, OptimizerStepsAndWeightsAgree) {
  const auto backend = make_naive_backend();
  for (const char* name : {"tiny", "one"}) {
    const Golden golden(name);
    for (const auto& run : golden.json["runs"]) {
      GoldenRun ours(*backend, golden, run, DType::f64);
      for (std::size_t step = 0; step < run["losses"].size(); ++step) {
        const double loss = run["losses"][step], norm = run["gradient_norms"][step];
        EXPECT_NEAR(ours.step(run["learning_rate"], static_cast<std::int64_t>(step)), loss, 1e-8 * loss)
            << step;
        EXPECT_NEAR(ours.optimizer.grad_norm(), norm, 1e-8 * norm) << step;
      }
      const Parameters& parameters = ours.model.parameters();
      for (const Parameter& row : parameters.table().rows()) {
        const auto w = test::to_values(*backend, parameters.weights().slice(row.offset, row.shape));
        const double expected = run["parameter_norms"][row.name];
        EXPECT_NEAR(std::sqrt(std::inner_product(w.begin(), w.end(), w.begin(), 0.0)), expected,
                    1e-8 * expected)
            << row.name;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stage0, GoldenModel,
                         testing::Combine(testing::Values("tiny", "one"),
                                          testing::Values("naive", "tiled", "blas")),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param)) + "_" + std::get<1>(test.param);
                         });

}  // namespace
}  // namespace stagegpt
