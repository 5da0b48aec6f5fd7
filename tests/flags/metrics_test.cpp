// Metrics are compared with their definitions, computed from the tensors and the text of a traced run.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "common/base/json.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/data/data_loader.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/model/gpt2.h"
#include "stage0_serial/naive_backend.h"
#include "tests/flags/traced_run.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kT = 12;

// A text of characters of one and two bytes. The first 3,000 characters are for training, the other 1,000 for
// validation.
std::string text_with_long_characters() {
  std::string text;
  for (int i = 0; i < 4000; ++i) {
    const std::uint32_t which = random_word({12, 0, 0}, i) % 9;
    text += which < 6 ? std::string(1, static_cast<char>('a' + which)) : std::string("é");
  }
  return text;
}

struct Prediction {
  double loss = 0;
  bool right = false;
};

// The loss, −log softmax, of logits (V) for the next token `target`, and whether `target` is the most
// probable token.
Prediction predicted(std::span<const double> logits, std::int32_t target) {
  const auto best = std::ranges::max_element(logits);
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - *best);
  return {*best + std::log(sum) - logits[static_cast<std::size_t>(target)], best - logits.begin() == target};
}

// The mean loss and the accuracy of logits (rows, V).
std::pair<double, double> mean_of(std::span<const double> logits, std::span<const std::int32_t> targets) {
  const std::size_t V = logits.size() / targets.size();
  double loss = 0, right = 0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    const Prediction one = predicted(logits.subspan(row * V, V), targets[row]);
    loss += one.loss;
    right += one.right;
  }
  const auto n = static_cast<double>(targets.size());
  return {loss / n, right / n};
}

// The mean loss and the accuracy of a checkpoint's model in f64, over all complete windows of `text`.
std::pair<double, double> evaluated(const std::filesystem::path& checkpoint,
                                    const std::vector<std::int32_t>& text) {
  const auto backend = make_naive_backend();
  const ModelFile file = read_hugging_face(checkpoint, "--model");
  Gpt2 model(*backend, file.config, DType::f64, 1, Purpose::inference);
  const ParameterTable& table = model.parameters().table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::vector<float> elements = elements_of(file.values, table, i);
    Values values(elements.begin(), elements.end());
    values.resize(static_cast<std::size_t>(table[i].arena_shape().numel()));
    set_values(*backend, model.parameters().var(i).value(), values);
  }
  Values logits;
  std::vector<std::int32_t> targets;
  const std::int64_t V = file.config.vocab_size, Vp = file.config.padded_vocab_size();
  for (std::size_t begin = 0; begin + kT < text.size(); begin += kT) {
    const std::vector<std::int32_t> ids(text.begin() + begin, text.begin() + begin + kT);
    Tape tape(*backend, Tape::Mode::inference);
    const Values padded = to_values(*backend, model.logits(tape, to_tensor(*backend, {1, kT}, ids)).value());
    for (std::int64_t t = 0; t < kT; ++t)
      logits.insert(logits.end(), padded.begin() + t * Vp, padded.begin() + t * Vp + V);
    targets.insert(targets.end(), text.begin() + begin + 1, text.begin() + begin + kT + 1);
  }
  return mean_of(logits, targets);
}

TEST(Metrics, AreWhatTheirNamesSay) {
  TracedRun run;
  const std::string text = text_with_long_characters();
  run.directory().write("text.txt", text);
  run.train(
      words("--eval-tokens 0 --steps 4 --trace-steps 4 --batch-size 5 --n-layer 2 --n-head 2 --n-embd 16 "
            "--block-size 12 --val-fraction 0.25 --warmup-steps 2 --learning-rate 0.02 --min-lr 0.004 "
            "--checkpoint-every 4 --seed 5 --max-new-tokens 0 --json"));
  const std::vector<nlohmann::json> lines = run.metrics();
  ASSERT_EQ(lines.size(), 4u);
  const auto tokenizer = load_tokenizer(run.in("tokenizer.json"), "--tokenizer-path");
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  const auto state = nlohmann::json::parse(read_bytes(run.in("latest/trainer_state.json")));
  const auto train_tokens = state["train_data"]["tokens"].get<std::ptrdiff_t>();
  const std::vector<std::int32_t> learnt(ids.begin(), ids.begin() + train_tokens);
  EXPECT_NEAR(static_cast<double>(tokenizer->decode(learnt).size()), 0.75 * static_cast<double>(text.size()),
              2);
  const DataLoader data(learnt, kT, 5);
  const OptimizerFlags flags{.learning_rate = 0.02, .min_lr = 0.004, .warmup_steps = 2, .steps = 4};
  for (int step = 1; step <= 4; ++step) {
    const nlohmann::json& line = lines[static_cast<std::size_t>(step) - 1];
    const auto [loss, accuracy] =
        mean_of(run.values(step, "the output of wte (linear)"), data.shuffled((step - 1) * 5, 5).targets);
    EXPECT_NEAR(line["loss"], loss, 1e-6);
    EXPECT_NEAR(line["perplexity"], std::exp(loss), 1e-5);
    EXPECT_NEAR(line["grad_norm"], norm_of_gradients(run, step), 1e-6);
    EXPECT_NEAR(line["learning_rate"], flags.rate(step - 1), 1e-12);
    EXPECT_EQ(line["tokens"], step * 5 * kT);
    EXPECT_EQ(line["step"], step);
  }

  // Validation: all windows after the training part, computed in f64.
  const std::vector<std::int32_t> validation(ids.begin() + train_tokens, ids.end());
  const auto [loss, accuracy] = evaluated(run.in("latest"), validation);
  const nlohmann::json& last = lines.back();
  EXPECT_NEAR(last["validation_loss"], loss, 1e-5);
  EXPECT_NEAR(last["validation_perplexity"], std::exp(loss), 1e-4);
  EXPECT_NEAR(last["validation_accuracy"], accuracy, 1e-9);
  // Bits per byte: the loss in bits, divided by the mean number of bytes of the target tokens.
  const std::size_t windows = (validation.size() - 1) / kT;
  double bytes = 0;
  for (std::size_t i = 1; i <= windows * kT; ++i)
    bytes += static_cast<double>(tokenizer->decode({&validation[i], 1}).size());
  const double per_token = bytes / static_cast<double>(windows * kT);
  EXPECT_GT(per_token, 1.2);
  EXPECT_NEAR(last["bits_per_byte"], loss / std::numbers::ln2 / per_token, 1e-5);

  // --json has the same values, and values of the whole run.
  const nlohmann::json json = nlohmann::json::parse(run.result().output);
  EXPECT_EQ(json["loss"], last["loss"]);
  EXPECT_EQ(json["validation_loss"], last["validation_loss"]);
  EXPECT_EQ(json["validation_accuracy"], last["validation_accuracy"]);
  EXPECT_EQ(json["bits_per_byte"], last["bits_per_byte"]);
  EXPECT_EQ(json["steps"], 4);
  const std::int64_t C = 16, V = 8;  // six letters, é, and the end of text
  EXPECT_EQ(json["parameters"], (V + kT) * C + 2 * (12 * C * C + 13 * C) + 2 * C);
  double seconds = 0;
  for (const nlohmann::json& line : lines) seconds += line["seconds"].get<double>();
  EXPECT_NEAR(json["tokens_per_second"].get<double>() * seconds, 4 * 5 * kT, 1e-6);
  EXPECT_NEAR(json["training_seconds"], seconds, 1e-9);
  EXPECT_GE(json["seconds"], seconds + json["validation_seconds"].get<double>());
  // The peak memory: weights, gradients, two moments, and not much more than the activations of a batch.
  const double arena = 4.0 * static_cast<double>(json["parameters"]);
  EXPECT_GT(last["peak_memory_bytes"], 4 * arena);
  EXPECT_LT(last["peak_memory_bytes"],
            4 * arena + 4 * (128 * C) * 4 + 4.0 * 5 * kT * (3 * 128 + 2 * 2 * 40 * C));
}

TEST(Metrics, OfADryRunAreSumsOverTheParameters) {
  const ScratchDirectory directory;
  directory.write("text.txt", text_with_long_characters());
  const ProgramResult result =
      run_program("stage0_train",
                  words("--data text.txt --tokenizer char --n-layer 2 --n-head 2 --n-embd 20 --block-size 12 "
                        "--batch-size 5 --grad-accumulation 3 --dry-run --json"),
                  directory.path());
  const nlohmann::json json = nlohmann::json::parse(result.output);
  const std::int64_t C = 20, V = 8;
  const auto padded = [](std::int64_t n) { return (n + 63) / 64 * 64; };  // the alignment of parameters
  const std::int64_t vectors = 6 * padded(C) + padded(3 * C) + padded(4 * C),
                     matrices = padded(3 * C * C) + padded(C * C) + 2 * padded(4 * C * C),
                     arena = padded(128 * C) + padded(kT * C) + 2 * (vectors + matrices) + 2 * padded(C);
  const std::int64_t parameters = (V + kT) * C + 2 * (12 * C * C + 13 * C) + 2 * C;
  EXPECT_EQ(json["parameters"], parameters);
  // The bytes of the allocated blocks: the allocator adds at most an eighth to a request.
  const std::pair<const char*, std::int64_t> kinds[] = {{"weights", 4}, {"gradients", 4}, {"moments", 8}};
  for (const auto& [kind, bytes] : kinds) {
    EXPECT_GE(json["memory_bytes"][kind], bytes * arena) << kind;
    EXPECT_LE(json["memory_bytes"][kind].get<double>(), 1.125 * static_cast<double>(bytes * arena)) << kind;
  }
  EXPECT_EQ(json["tokens_per_step"], 5 * 3 * kT);
  EXPECT_EQ(json["flops_per_token"], 6 * parameters + 6 * 2 * C * kT);
  EXPECT_EQ(json["total_flops"], 2000.0 * 5 * 3 * kT * static_cast<double>(6 * parameters + 6 * 2 * C * kT));
}

// Generation: the number of tokens is correct, and tokens_per_second is consistent with ms_per_token.
TEST(Metrics, OfGenerationBelongTogether) {
  TracedRun run;
  run.train(words("--steps 1 --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 --max-new-tokens 0"));
  const ProgramResult result = run_program(
      "stage0_generate",
      words("--model run --threads 1 --prompt abc --num-samples 3 --max-new-tokens 7 --temperature 0 --json"),
      run.directory().path());
  const nlohmann::json json = nlohmann::json::parse(result.output);
  std::size_t written = 0;
  for (const nlohmann::json& sample : json["samples"]) written += sample["text"].get<std::string>().size();
  EXPECT_EQ(json["tokens"], written);
  EXPECT_EQ(written, 3 * 7u);
  EXPECT_GT(json["ms_per_token"], 0);
  EXPECT_GT(json["ms_to_first_token"], 0);
  EXPECT_NEAR(json["tokens_per_second"].get<double>() * json["ms_per_token"].get<double>(), 1000, 1e-6);
}

}  // namespace
}  // namespace stagegpt::test
