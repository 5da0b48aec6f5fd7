// The numbers of layers, compared with their definitions.
#include "common/train/layer_watch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "stage0_serial/cpu_backend.h"
#include "tests/support/small_training.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

struct WatchedRun : SmallTraining {
  explicit WatchedRun(const TrainerConfig& config, double dropout = 0)
      : SmallTraining(make_cpu_backend(1), config, random_tokens(1000), dropout) {}

  std::vector<LayerHealth> watched_step(const Tape::OpWatch& ops = {}) {
    const Grid grid(communicator);
    LayerWatch watch(grid, *backend, model, trainer.optimizer().owned());
    trainer.step(ops, &watch);
    return watch.finish();
  }
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double element : x) sum += element * element;
  return std::sqrt(sum);
}

const LayerHealth& named(const std::vector<LayerHealth>& layers, const std::string& name) {
  for (const LayerHealth& layer : layers) {
    if (layer.name == name) return layer;
  }
  throw std::runtime_error("no layer " + name);
}

TEST(LayerWatch, NormsAreThoseOfTheArenas) {
  WatchedRun run(small_config(4, 1));
  run.trainer.step();
  const std::vector<float> before = run.weights();
  const std::vector<LayerHealth> layers = run.watched_step();
  const std::vector<float> after = run.weights(), grads = run.grads();
  const std::map<std::string, std::pair<const char*, const char*>> first_and_last = {
      {"wte", {"wte.weight", "wte.weight"}},
      {"wpe", {"wpe.weight", "wpe.weight"}},
      {"h.0", {"h.0.ln_1.weight", "h.0.mlp.c_proj.bias"}},
      {"h.1", {"h.1.ln_1.weight", "h.1.mlp.c_proj.bias"}},
      {"ln_f", {"ln_f.weight", "ln_f.bias"}}};
  ASSERT_EQ(layers.size(), first_and_last.size());
  for (const auto& [name, parameters] : first_and_last) {
    const ParameterTable& table = run.model.parameters().table();
    const Parameter &first = table[static_cast<std::size_t>(table.find(parameters.first))],
                    &last = table[static_cast<std::size_t>(table.find(parameters.second))];
    std::vector<double> w, dw, g;
    for (auto i = static_cast<std::size_t>(first.offset);
         i < static_cast<std::size_t>(last.offset + last.arena_shape().numel()); ++i) {
      w.push_back(before[i]);
      dw.push_back(static_cast<double>(after[i]) - before[i]);
      g.push_back(grads[i]);
    }
    const LayerHealth& layer = named(layers, name);
    EXPECT_NEAR(layer.weight_norm, norm(w), 1e-9 * norm(w)) << name;
    EXPECT_NEAR(layer.update_ratio, norm(dw) / norm(w), 1e-9) << name;
    EXPECT_GT(layer.update_ratio, 0) << name;
    EXPECT_NEAR(layer.grad_norm, norm(g), 1e-6 * norm(g)) << name;
  }
}

// What a branch adds is the difference between the residual stream after it and before it.
TEST(LayerWatch, ActivationsAreThoseOfTheStream) {
  WatchedRun run(small_config(4, 1), /*dropout=*/0.1);
  std::vector<Values> streams;  // before the first block, after its attention, after its MLP, …
  const std::vector<LayerHealth> layers =
      run.watched_step([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
        if (op == "layernorm") streams.push_back(to_values(*run.backend, inputs[0].value()));
        if (op == "residual_layernorm") streams.push_back(to_values(*run.backend, outs[0].value()));
      });
  ASSERT_EQ(streams.size(), 5u);
  const auto added = [&](std::size_t i) {
    Values difference;
    for (std::size_t j = 0; j < streams[i].size(); ++j)
      difference.push_back(streams[i][j] - streams[i - 1][j]);
    return norm(difference) / norm(streams[i - 1]);
  };
  for (std::size_t l = 0; l < 2; ++l) {
    const BlockActivations found = named(layers, concat("h.", l)).activations.value();
    const Values& stream = streams[2 * l + 2];
    const auto n = static_cast<double>(stream.size());
    double sum = 0, largest = 0;
    for (const double x : stream) sum += x, largest = std::max(largest, std::abs(x));
    EXPECT_NEAR(found.mean, sum / n, 1e-9);
    EXPECT_NEAR(found.rms, norm(stream) / std::sqrt(n), 1e-9);
    EXPECT_EQ(found.largest, largest);
    EXPECT_NEAR(found.attention_added, added(2 * l + 1), 1e-5);
    EXPECT_NEAR(found.mlp_added, added(2 * l + 2), 1e-5);
    EXPECT_EQ(found.dead_units, 0);
  }
  EXPECT_FALSE(named(layers, "ln_f").activations);
}

TEST(LayerWatch, CountsAllTokensOfTheStep) {
  WatchedRun at_once(small_config(4, 1)), in_parts(small_config(2, 2));
  const std::vector<LayerHealth> a = at_once.watched_step(), b = in_parts.watched_step();
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i].grad_norm, b[i].grad_norm, 1e-5 * a[i].grad_norm);
    if (!a[i].activations) continue;
    EXPECT_NEAR(a[i].activations->rms, b[i].activations->rms, 1e-6);
    EXPECT_NEAR(a[i].activations->largest, b[i].activations->largest, 1e-5);
    EXPECT_NEAR(a[i].activations->mlp_added, b[i].activations->mlp_added, 1e-5);
  }
}

TEST(LayerWatch, ChangesNoBit) {
  WatchedRun watched(small_config(4, 2), 0.1), plain(small_config(4, 2), 0.1);
  for (int step = 0; step < 2; ++step) {
    watched.watched_step();
    plain.trainer.step();
  }
  EXPECT_EQ(watched.weights(), plain.weights());
}

// An MLP whose units are far below zero for every token adds nothing. One unit of the other MLP is dead too.
TEST(LayerWatch, FindsADeadLayer) {
  WatchedRun run(small_config(4, 1));
  const auto fill = [&](const char* name, std::size_t n, double value) {
    const Tensor& tensor = run.model.parameters().var(name).value();
    Values values = to_values(*run.backend, tensor);
    std::fill_n(values.begin(), n, value);
    set_values(*run.backend, tensor, values);
  };
  constexpr std::size_t kUnits = 192;
  fill("h.1.mlp.c_fc.bias", kUnits, -100);
  fill("h.0.mlp.c_fc.bias", 1, -100);
  const std::vector<LayerHealth> layers = run.watched_step();
  const BlockActivations alive = *named(layers, "h.0").activations, dead = *named(layers, "h.1").activations;
  EXPECT_EQ(dead.dead_units, 1);
  EXPECT_LT(dead.mlp_added, 1e-6);
  EXPECT_GT(dead.attention_added, 0);
  EXPECT_EQ(alive.dead_units, 1.0 / kUnits);
  EXPECT_GT(alive.mlp_added, 0.01);
}

}  // namespace
}  // namespace stagegpt::test
