// Flags of stage0_train and their effect on numbers: weights, activations, tokens, files.
#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/data_loader.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "tests/flags/traced_run.h"
#include "tests/support/statistics.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// The initial weights by name; tests/random/weights_test.cpp tests their values. nano's standard deviation is
// 0.08.
std::map<std::string, Values> initial_weights(const Gpt2Config& config, std::uint64_t seed) {
  const std::unique_ptr<Backend> backend = make_naive_backend();
  Parameters parameters(*backend, gpt2_parameter_table(config), DType::f32, 1, Purpose::inference);
  parameters.initialize(seed);
  std::map<std::string, Values> weights;
  for (const Parameter& row : parameters.table().rows()) {
    Values values = to_values(*backend, parameters.var(row.name).value());
    values.resize(static_cast<std::size_t>(row.shape.numel()));
    weights[row.name] = values;
  }
  return weights;
}

// The tokens of the first micro-step of step 1, recovered from its embeddings (B,T,C).
std::vector<std::int32_t> tokens_of_first_step(const TracedRun& run, std::map<std::string, Values>& initial) {
  const Values& embedded = run.values(1, "the output of wte (embedding)");
  const auto shape = run.shape(1, "the output of wte (embedding)");
  const auto T = static_cast<std::size_t>(shape[1]), C = static_cast<std::size_t>(shape[2]);
  const Values &wte = initial["wte.weight"], &wpe = initial["wpe.weight"];
  std::vector<std::int32_t> ids;
  for (std::size_t row = 0; row < embedded.size() / C; ++row) {
    const auto is_token = [&](std::size_t id) {
      double difference = 0;
      for (std::size_t c = 0; c < C; ++c)
        difference += std::abs(embedded[row * C + c] - wte[id * C + c] - wpe[row % T * C + c]);
      return difference < 1e-5;
    };
    std::size_t id = 0;
    while (id < wte.size() / C && !is_token(id)) ++id;
    ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

// The weights must be those of AdamW with these flags. With the default value of any of the flags in
// `others`, the weights must differ.
void expect_optimizer(
    const TracedRun& run, const OptimizerFlags& flags, const std::map<std::string, Values>& initial,
    const std::vector<std::pair<const char*, std::function<void(OptimizerFlags&)>>>& others) {
  EXPECT_LT(adamw_error(run, flags, initial), 1e-5);
  for (const auto& [flag, change] : others) {
    OptimizerFlags other = flags;
    change(other);
    EXPECT_GT(adamw_error(run, other, initial), 1e-3) << flag << " would not be seen";
  }
}

TEST(TrainFlags, OfTheOptimizerAndTheBatchReachTheWeights) {
  TracedRun run;
  run.directory().write("config.json", R"({"beta1": 0.7, "seed": 99, "batch_size": 3})");
  run.train(
      words("--config config.json --grad-accumulation 2 --steps 6 --stop-after 5 --trace-steps 5 "
            "--learning-rate 0.02 --min-lr 0.01 --warmup-steps 2 --lr-schedule linear --weight-decay 0.3 "
            "--beta2 0.8 --eps 0.001 --grad-clip 0.5 --n-layer 2 --n-head 2 --n-embd 16 --block-size 12 "
            "--val-fraction 0.25 --max-new-tokens 0"));
  ASSERT_EQ(run.steps(), 5);
  const Gpt2Config config{.vocab_size = 21,  // 20 letters and the end of text
                          .block_size = 12,
                          .n_layer = 2,
                          .n_head = 2,
                          .n_embd = 16,
                          .initializer_range = 0.08};
  auto initial = initial_weights(config, 99);
  const OptimizerFlags flags{.learning_rate = 0.02,
                             .min_lr = 0.01,
                             .warmup_steps = 2,
                             .steps = 6,
                             .lr_schedule = "linear",
                             .weight_decay = 0.3,
                             .beta1 = 0.7,
                             .beta2 = 0.8,
                             .eps = 1e-3,
                             .grad_clip = 0.5};
  expect_optimizer(run, flags, initial,
                   {{"--learning-rate", [](OptimizerFlags& f) { f.learning_rate = 0.003; }},
                    {"--min-lr", [](OptimizerFlags& f) { f.min_lr = 0.002; }},
                    {"--warmup-steps", [](OptimizerFlags& f) { f.warmup_steps = 0; }},
                    {"--steps", [](OptimizerFlags& f) { f.steps = 5; }},
                    {"--lr-schedule", [](OptimizerFlags& f) { f.lr_schedule = "cosine"; }},
                    {"--weight-decay", [](OptimizerFlags& f) { f.weight_decay = 0.1; }},
                    {"--beta1", [](OptimizerFlags& f) { f.beta1 = 0.8; }},
                    {"--beta2", [](OptimizerFlags& f) { f.beta2 = 0.7; }},
                    {"--eps", [](OptimizerFlags& f) { f.eps = 1e-8; }},
                    {"--grad-clip", [](OptimizerFlags& f) { f.grad_clip = 1; }}});

  // The training part is the first three quarters of the text. Its windows are shuffled with seed 99 (see
  // tests/random/order_test.cpp).
  const auto tokenizer = load_tokenizer(run.in("tokenizer.json"), "--tokenizer-path");
  const DataLoader data(tokenizer->encode(run.text().substr(0, 3000)), 12, 99);
  EXPECT_EQ(tokens_of_first_step(run, initial),
            data.shuffled(0, 3).ids);  // --seed, --block-size, --val-fraction
  const auto state = nlohmann::json::parse(read_bytes(run.in("latest/trainer_state.json")));
  EXPECT_EQ(state["data_position"], 5 * 3 * 2);
}

TEST(TrainFlags, OfAScheduleWithoutDecayAndClippingReachTheWeights) {
  TracedRun run;
  run.train(
      words("--batch-size 2 --steps 4 --trace-steps 4 --learning-rate 0.01 --min-lr 0 --beta1 0 "
            "--lr-schedule cosine --weight-decay 0 --grad-clip 0 --n-layer 1 --n-head 1 --n-embd 16 "
            "--block-size 8 --max-new-tokens 0"));
  const Gpt2Config config{
      .vocab_size = 21, .block_size = 8, .n_layer = 1, .n_head = 1, .n_embd = 16, .initializer_range = 0.08};
  const OptimizerFlags flags{
      .learning_rate = 0.01, .min_lr = 0, .steps = 4, .weight_decay = 0, .beta1 = 0, .grad_clip = 0};
  expect_optimizer(run, flags, initial_weights(config, 1337),
                   {{"--min-lr", [](OptimizerFlags& f) { f.min_lr = 0.001; }},
                    {"--lr-schedule", [](OptimizerFlags& f) { f.lr_schedule = "linear"; }},
                    {"--weight-decay", [](OptimizerFlags& f) { f.weight_decay = 0.1; }},
                    {"--beta1", [](OptimizerFlags& f) { f.beta1 = 0.9; }},
                    {"--grad-clip", [](OptimizerFlags& f) { f.grad_clip = 1; }}});
}

TEST(TrainFlags, OfADecayAtTheEndReachTheWeights) {
  TracedRun run;
  run.train(
      words("--batch-size 2 --steps 6 --trace-steps 6 --learning-rate 0.01 --min-lr 0 --lr-schedule wsd "
            "--decay-steps 4 --warmup-steps 0 --n-layer 1 --n-head 1 --n-embd 16 --block-size 8 "
            "--max-new-tokens 0"));
  const Gpt2Config config{
      .vocab_size = 21, .block_size = 8, .n_layer = 1, .n_head = 1, .n_embd = 16, .initializer_range = 0.08};
  const OptimizerFlags flags{
      .learning_rate = 0.01, .min_lr = 0, .steps = 6, .lr_schedule = "wsd", .decay_steps = 4};
  expect_optimizer(run, flags, initial_weights(config, 1337),
                   {{"--decay-steps", [](OptimizerFlags& f) { f.decay_steps = 3; }},
                    {"--lr-schedule", [](OptimizerFlags& f) { f.lr_schedule = "linear"; }}});
}

// Attention by its definition: the softmax of scaled, causal scores, times the values, for each of NH heads.
// qkv (B,T,3C).
Values defined_attention(const Values& qkv, std::size_t B, std::size_t T, std::size_t C, std::size_t NH) {
  const std::size_t HS = C / NH;
  Values out(B * T * C);
  for (std::size_t row = 0; row < B * T * NH; ++row) {
    const std::size_t b = row / (T * NH), t = row / NH % T, h = row % NH;
    const auto at = [&](std::size_t token, std::size_t part, std::size_t c) {
      return qkv[(b * T + token) * 3 * C + part * C + h * HS + c];
    };
    Values weights(t + 1);
    double sum = 0;
    for (std::size_t key = 0; key <= t; ++key) {
      double score = 0;
      for (std::size_t c = 0; c < HS; ++c) score += at(t, 0, c) * at(key, 1, c);
      sum += weights[key] = std::exp(score / std::sqrt(static_cast<double>(HS)));
    }
    for (std::size_t c = 0; c < HS; ++c) {
      for (std::size_t key = 0; key <= t; ++key)
        out[(b * T + t) * C + h * HS + c] += weights[key] / sum * at(key, 2, c);
    }
  }
  return out;
}

double largest_difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

TEST(TrainFlags, OfTheModelReachTheActivations) {
  for (const std::string activation : {"gelu_new", "gelu", "relu"}) {
    TracedRun run;
    run.train({"--batch-size",     "2",  "--steps",        "2",        "--trace-steps",   "2",
               "--n-layer",        "3",  "--n-head",       "4",        "--n-embd",        "24",
               "--block-size",     "10", "--activation",   activation, "--learning-rate", "0.05",
               "--max-new-tokens", "0",  "--val-fraction", "0.5"});
    EXPECT_TRUE(run.has(1, "the output of h.2.mlp.c_proj (activation_linear)"));
    EXPECT_FALSE(run.has(1, "the output of h.3.mlp.c_proj (activation_linear)"));  // --n-layer
    EXPECT_EQ(run.shape(1, "the output of wte (embedding)"), (std::vector<std::int64_t>{2, 10, 24}));
    const Values &qkv = run.values(2, "the output of h.1.attn.c_attn (linear)"),
                 &y = run.values(2, "the output of attention, after h.1.attn.c_attn");
    EXPECT_LT(largest_difference(y, defined_attention(qkv, 2, 10, 24, 4)), 1e-5);
    EXPECT_GT(largest_difference(y, defined_attention(qkv, 2, 10, 24, 2)), 1e-3);  // --n-head
    // W act(z) + b, with the weights after step 1.
    const Values &pre = run.values(2, "the output of h.1.mlp.c_fc (linear)"),
                 &w = run.values(1, "the weight h.1.mlp.c_proj.weight"),
                 &bias = run.values(1, "the weight h.1.mlp.c_proj.bias"),
                 &out = run.values(2, "the output of h.1.mlp.c_proj (activation_linear)");
    const auto act = [&](double z) {
      if (activation == "relu") return std::max(z, 0.0);
      if (activation == "gelu") return z / 2 * (1 + std::erf(z / std::sqrt(2)));
      return z / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (z + 0.044715 * z * z * z)));
    };
    Values expected(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t row = i / 24, o = i % 24;
      expected[i] = bias[o];
      for (std::size_t c = 0; c < 96; ++c) expected[i] += act(pre[row * 96 + c]) * w[o * 96 + c];
    }
    EXPECT_LT(largest_difference(out, expected), 5e-6) << activation;  // the two gelus differ by 5e-4
  }
}

// With dropout, the fraction of zeros is p. With --overfit-batch, every step has the samples of the first
// step.
TEST(TrainFlags, OfDropoutAndOfOneBatchReachTheActivations) {
  TracedRun run;
  run.train(
      words("--batch-size 4 --steps 3 --trace-steps 3 --n-layer 2 --n-head 2 --n-embd 32 --block-size 16 "
            "--dropout 0.15 --overfit-batch --learning-rate 1e-30 --max-new-tokens 0"));
  double dropped = 0, n = 0;
  for (int step = 1; step <= 3; ++step) {
    for (const char* after :
         {"wte", "h.0.attn.c_proj", "h.0.mlp.c_proj", "h.1.attn.c_proj", "h.1.mlp.c_proj"}) {
      const Values& out = run.values(step, concat("the output of dropout, after ", after));
      dropped += static_cast<double>(std::ranges::count(out, 0.0));
      n += static_cast<double>(out.size());
    }
    EXPECT_EQ(run.values(step, "the output of wte (embedding)"),
              run.values(1, "the output of wte (embedding)"));
  }
  EXPECT_NEAR(dropped / n, 0.15, kLimit * std::sqrt(0.15 * 0.85 / n));
}

// Frozen parameters have no gradient, and stay as they were drawn. The others have the gradients that they
// have without --freeze.
TEST(TrainFlags, OfFrozenParametersLeaveThemAsTheyAre) {
  const Arguments flags = words(
      "--batch-size 2 --steps 3 --trace-steps 3 --n-layer 2 --n-head 2 --n-embd 16 --block-size 8 --seed 5 "
      "--grad-clip 0.1 --weight-decay 0.5 --max-new-tokens 0 --json");
  TracedRun whole, frozen;
  whole.train(flags);
  frozen.train(with_flags(flags, {"--freeze", "wte*,h.0.*,*.ln_2.bias"}));
  const Gpt2Config config{
      .vocab_size = 21, .block_size = 8, .n_layer = 2, .n_head = 2, .n_embd = 16, .initializer_range = 0.08};
  const auto initial = initial_weights(config, 5);
  std::int64_t trained = 0;
  for (const auto& [name, values] : initial) {
    const bool is_frozen = name.starts_with("wte") || name.starts_with("h.0.") || name == "h.1.ln_2.bias";
    EXPECT_EQ(frozen.values(3, "the weight " + name) == values, is_frozen) << name;
    const Values& gradient = frozen.values(1, "the gradient of " + name);
    EXPECT_EQ(gradient, is_frozen ? Values(values.size()) : whole.values(1, "the gradient of " + name))
        << name;
    trained += is_frozen ? 0 : std::ssize(values);
  }
  for (int step = 1; step <= 3; ++step) {
    const double norm = frozen.metrics()[static_cast<std::size_t>(step) - 1]["grad_norm"];
    EXPECT_NEAR(norm, norm_of_gradients(frozen, step), 1e-6 * norm);
  }
  EXPECT_EQ(nlohmann::json::parse(frozen.result().output)["trained_parameters"], trained);
  expect_said(frozen.result(), concat(" parameters, ", grouped(trained), " of them trained, 2 layers"));
  const auto settings = nlohmann::json::parse(read_bytes(frozen.in("run.json")));
  EXPECT_EQ(settings["freeze"], "wte*,h.0.*,*.ln_2.bias");
  EXPECT_EQ(settings["derived"]["trained_parameters"], trained);
}

// The letter a alone is learnt in a few steps, random letters are not.
TEST(TrainFlags, OfAMixtureSetTheShareOfEachText) {
  TracedRun one, random;
  const auto train = [](TracedRun& run, const std::string& data) {
    run.directory().write("a.txt", std::string(4000, 'a'));
    run.train({"--data", data, "--steps", "30", "--n-layer", "1", "--n-head", "2", "--n-embd", "16",
               "--block-size", "16", "--batch-size", "4", "--max-new-tokens", "0"});
  };
  train(one, "text.txt=1,a.txt=9999");
  train(random, "text.txt=9999,a.txt=1");
  EXPECT_LT(one.metrics().back()["loss"], 1.5);
  EXPECT_GT(random.metrics().back()["loss"], 2.5);  // ln 20 = 3.0
  expect_said(one.result(),
              "\ndata: text.txt (0.01 %, 3,600 tokens) and a.txt (99.99 %, 3,600 "
              "tokens), 7,200 tokens for training, ");
}

// Also when the optimizer has moments of them, since they were trained before.
TEST(TrainFlags, OfParametersThatAreFrozenLaterHaveNoGradient) {
  const Arguments flags =
      words("--batch-size 2 --steps 3 --n-layer 1 --n-head 2 --n-embd 16 --block-size 8 --max-new-tokens 0");
  TracedRun run;
  run.train(with_flags(flags, {"--stop-after", "2"}));
  run.train(with_flags(flags, words("--resume --freeze wte*,h.0.mlp.* --trace-steps 1")));
  ASSERT_EQ(run.steps(), 1);
  const Values &frozen = run.values(1, "the gradient of h.0.mlp.c_fc.weight"),
               &trained = run.values(1, "the gradient of h.0.attn.c_attn.weight");
  EXPECT_EQ(frozen, Values(frozen.size()));
  EXPECT_NE(trained, Values(trained.size()));
  const double norm = run.metrics().back()["grad_norm"];
  EXPECT_NEAR(norm, norm_of_gradients(run, 1), 1e-6 * norm);
}

TEST(TrainFlags, OfFrozenParametersNameSome) {
  const ScratchDirectory directory;
  const auto refused = [&](const std::string& patterns) {
    const ProgramResult result =
        run_program("stage0_train", {"--freeze", patterns, "--print-config"}, directory.path());
    EXPECT_EQ(result.exit_code, 2);
    return result.errors;
  };
  const std::string no_such =
      "' matches no parameter; their names are such as wte.weight and h.0.attn.c_attn.weight\n";
  EXPECT_EQ(refused("wte*,h.4.*"), "stage0_train: --freeze: 'h.4.*" + no_such);
  EXPECT_EQ(refused("lm_head.weight"), "stage0_train: --freeze: 'lm_head.weight" + no_such);
  EXPECT_EQ(refused("wte*,,h.0.*"), "stage0_train: --freeze: '" + no_such);
  EXPECT_EQ(refused("*.weight,*.bias"),
            "stage0_train: --freeze: expected patterns that leave a parameter to train\n");
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename());
  return names;
}

TEST(TrainFlags, OfRhythmSayAfterWhichStepsThereIsWhat) {
  TracedRun run;
  run.train(
      words("--steps 11 --batch-size 1 --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 --eval-every 5 "
            "--checkpoint-every 2 --keep-last 3 --keep-every 4 --lr-schedule constant --learning-rate 0.01 "
            "--trace-steps 3 --max-new-tokens 0 --json"));
  // Kept are the newest three checkpoints, older ones whose step is a multiple of four, and the best one.
  std::set<std::string> expected = {"step_00000004", "step_00000008", "step_00000010", "step_00000011"};
  expected.insert(fs::read_symlink(run.in("best")).filename());
  EXPECT_EQ(names_in(run.in("checkpoints")), expected);
  std::vector<int> validated;
  for (const auto& line : run.metrics()) {
    if (line.contains("validation_loss")) validated.push_back(line["step"]);
  }
  EXPECT_EQ(validated, (std::vector{2, 4, 5, 6, 8, 10, 11}));  // at every checkpoint and every fifth step
  EXPECT_EQ(run.steps(), 3);
  EXPECT_EQ(nlohmann::json::parse(run.result().output)["steps"], 11);
  const Gpt2Config config{
      .vocab_size = 21, .block_size = 8, .n_layer = 1, .n_head = 1, .n_embd = 8, .initializer_range = 0.08};
  const OptimizerFlags flags{.learning_rate = 0.01, .steps = 11, .lr_schedule = "constant"};
  expect_optimizer(run, flags, initial_weights(config, 1337),
                   {{"--lr-schedule", [](OptimizerFlags& f) { f.lr_schedule = "cosine"; }}});
}

}  // namespace
}  // namespace stagegpt::test
