// Generation with a KV cache.
#include "common/generation/generation.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "common/backend/texts_together.h"
#include "common/comm/agreement.h"
#include "common/comm/self_communicator.h"
#include "common/generation/stop_strings.h"
#include "common/model/gpt2.h"
#include "common/tensor/half_floats.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/counting_communicator.h"
#include "tests/support/tensors.h"
#include "tests/support/tolerance.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kVocabulary = 61;
using Ids = std::vector<std::int32_t>;
SelfCommunicator alone;

Gpt2Config tiny(std::int64_t block_size) {
  return {.vocab_size = kVocabulary,
          .block_size = block_size,
          .n_layer = 2,
          .n_head = 3,
          .n_embd = 24,
          .initializer_range = 0.3};
}

Gpt2Config untied_tiny(std::int64_t block_size) {
  Gpt2Config config = tiny(block_size);
  config.tie_word_embeddings = false;
  config.n_inner = 31;
  config.layer_norm_epsilon = 1e-3;
  config.scale_attn_by_inverse_layer_idx = true;
  return config;
}

// The logits for the last window of a text, computed at once without a KV cache.
std::vector<float> recomputed(Backend& backend, const Gpt2& model, std::span<const std::int32_t> tokens) {
  const auto window =
      tokens.subspan(static_cast<std::size_t>(window_begin(std::ssize(tokens), model.config().block_size)));
  Tape tape(backend, Tape::Mode::inference);
  const Tensor logits =
      model.logits(tape, to_device<std::int32_t>(backend, {1, std::ssize(window)}, window)).value();
  const std::int64_t row = model.config().padded_vocab_size();
  return to_host<float>(backend, logits.slice((std::ssize(window) - 1) * row, {kVocabulary}));
}

// The logits after a single text.
std::vector<float> logits_after(Context&& context, std::span<const std::int32_t> text) {
  return context.next_logits(std::array{Tokens(text.begin(), text.end())}).front();
}
std::vector<float> logits_after(Context& context, std::span<const std::int32_t> text) {
  return logits_after(std::move(context), text);
}

Values as_values(const std::vector<float>& floats) { return {floats.begin(), floats.end()}; }

TEST(Window, DropsTheFirstHalfWheneverItIsFull) {
  EXPECT_EQ(window_begin(1, 8), 0);
  EXPECT_EQ(window_begin(8, 8), 0);
  EXPECT_EQ(window_begin(9, 8), 4);
  EXPECT_EQ(window_begin(12, 8), 4);
  EXPECT_EQ(window_begin(13, 8), 8);
  EXPECT_EQ(window_begin(1000, 8), 992);
  EXPECT_EQ(window_begin(8, 7), 4);
  EXPECT_EQ(window_begin(11, 7), 4);
  EXPECT_EQ(window_begin(12, 7), 8);
  EXPECT_EQ(window_begin(2, 1), 1);
}

TEST(Window, HoldsAtLeastOneAndAtMostAllTokens) {
  for (std::int64_t block_size = 1; block_size < 12; ++block_size) {
    for (std::int64_t n = 1; n < 60; ++n) {
      const std::int64_t length = n - window_begin(n, block_size);
      EXPECT_GE(length, std::min(n, std::max<std::int64_t>(1, block_size / 2)));
      EXPECT_LE(length, block_size);
      EXPECT_GE(window_begin(n + 1, block_size), window_begin(n, block_size));
    }
  }
}

class Cached : public testing::TestWithParam<std::int64_t> {};

// The error of logits from a KV cache against those of whole windows.
double cache_error(const Gpt2Config& config) {
  const auto backend = make_cpu_backend(2);
  Gpt2 model(*backend, config);
  model.parameters().initialize(5);
  const Ids tokens = random_ids(6, 0, 45, kVocabulary);
  Context context(*backend, model, alone);
  RelativeError error;
  for (std::size_t n : {1, 2, 3, 5, 6, 7, 8, 9, 17, 18, 19, 20, 21, 30, 31, 44, 45}) {
    const auto text = std::span(tokens).first(n);
    error.add(as_values(logits_after(context, text)), as_values(recomputed(*backend, model, text)));
  }
  return error.value();
}

TEST_P(Cached, LogitsAreThoseOfRecomputation) {
  for (const Gpt2Config& config : {tiny(GetParam()), untied_tiny(GetParam())})
    EXPECT_LE(cache_error(config), error_limit(0, 4 * 24, DType::f32) * 4) << config.tie_word_embeddings;
}
INSTANTIATE_TEST_SUITE_P(Blocks, Cached, testing::Values(1, 2, 7, 8, 20, 64));

TEST(Gpt2, ForInferenceHasNoGradients) {
  const auto backend = make_cpu_backend(1);
  Gpt2 model(*backend, tiny(16), DType::f32, 1, Purpose::inference);
  const std::size_t arena = model.parameters().weights().bytes();
  EXPECT_LT(backend->memory_stats().peak_bytes_in_use, arena + arena / 2);
}

TEST(Context, BeginsAgainForAnotherText) {
  const auto backend = make_cpu_backend(1);
  Gpt2 model(*backend, tiny(16), DType::f32, 1, Purpose::inference);
  model.parameters().initialize(5);
  const Ids one = {1, 2, 3, 4}, other = {1, 2, 7, 4, 5}, shorter = {1, 2};
  Context context(*backend, model, alone);
  for (const Ids& text : {one, other, shorter, one, one}) {
    EXPECT_LE(
        relative_error(as_values(logits_after(context, text)), as_values(recomputed(*backend, model, text))),
        1e-5);
  }
}

Ids written(Context& context, const Ids& prompt, std::int64_t n, const SamplingConfig& config,
            std::uint32_t sample = 0) {
  Ids ids;
  generate(context, prompt, n, config, sample, [&](std::size_t, std::int32_t id) {
    ids.push_back(id);
    return true;
  });
  return ids;
}

class Generate : public testing::Test {
 protected:
  Generate() { model.parameters().initialize(5); }

  const std::unique_ptr<Backend> backend = make_cpu_backend(2);
  Gpt2 model{*backend, tiny(12)};
  Context context{*backend, model, alone};
};

TEST_F(Generate, WritesTheMostProbableAsRecomputationDoes) {
  Ids tokens = {3, 1, 4};
  const Ids text = written(context, tokens, 60, {.temperature = 0});
  for (const std::int32_t id : text) {
    const std::vector<float> logits = recomputed(*backend, model, tokens);
    EXPECT_EQ(id, std::ranges::max_element(logits) - logits.begin()) << "token " << tokens.size();
    tokens.push_back(id);
  }
}

TEST_F(Generate, WritesOnlyTokensThatTheTokenizerHas) {
  Ids tokens = {3, 1, 4};
  const std::vector<float> logits = recomputed(*backend, model, tokens);
  const std::int32_t best = static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
  ASSERT_GT(best, 0);
  const Ids text = written(context, tokens, 1, {.vocabulary = best, .temperature = 0});
  EXPECT_EQ(text[0], std::max_element(logits.begin(), logits.begin() + best) - logits.begin());
  for (const std::int32_t id :
       written(context, tokens, 200, {.vocabulary = 3, .repetition_penalty = 1.5, .temperature = 5}))
    EXPECT_LT(id, 3);
}

TEST_F(Generate, DependsOnTheSeedAndTheSampleAlone) {
  Context another(*backend, model, alone);
  const Ids first = written(context, {3}, 40, {.seed = 1}),
            second = written(context, {3}, 40, {.seed = 1}, 1);
  EXPECT_EQ(written(another, {3}, 40, {.seed = 1}), first);
  EXPECT_EQ(written(another, {3}, 40, {.seed = 1}, 1), second);
  EXPECT_NE(first, second);
  EXPECT_NE(written(context, {3}, 40, {.seed = 2}), first);
}

// Equal texts, then others, of which the last two are equal, which the context of 12 tokens leaves four
// times. Two tokens at a time, and one. The sums are the same as those of a text alone, to the bit.
void expect_the_logits_of_each(std::int64_t count, DType matrices, DType activations = DType::f32) {
  const auto backend = make_cpu_backend(2);
  Gpt2 model(*backend, tiny(12), DType::f32, 1, Purpose::inference, activations);
  model.parameters().initialize(5);
  if (matrices != DType::f32) model.narrow_matrices(matrices);
  std::vector<Tokens> texts(static_cast<std::size_t>(count));
  Context together(*backend, model, alone, count);
  std::vector<Context> each;
  for (std::size_t i = 0; i < texts.size(); ++i) each.emplace_back(*backend, model, alone);
  for (std::int64_t n = 1; n < 40; ++n) {
    for (std::size_t i = 0; i < texts.size(); ++i)
      texts[i] =
          random_ids(6, static_cast<std::uint32_t>(n < 5 ? texts.size() : std::min(i, texts.size() - 2)), n,
                     kVocabulary);
    if (n % 3 == 0) continue;
    const auto logits = together.next_logits(texts);
    for (std::size_t i = 0; i < texts.size(); ++i)
      EXPECT_EQ(logits[i], logits_after(each[i], texts[i])) << matrices << ' ' << n << " tokens, text " << i;
  }
}

TEST(Context, OfSeveralTextsHasTheLogitsOfEach) {
  expect_the_logits_of_each(kMostTextsTogether, DType::f32);
  expect_the_logits_of_each(6, DType::bf16);
  expect_the_logits_of_each(6, DType::i8);
  expect_the_logits_of_each(6, DType::f32, DType::bf16);
}

// One text ends early, and the others go on.
TEST_F(Generate, TextsTogetherAreThoseOfEachAlone) {
  for (const SamplingConfig& config :
       {SamplingConfig{.seed = 1}, {.top_k = 4, .seed = 2}, {.temperature = 0}}) {
    Context together(*backend, model, alone, 3);
    std::vector<Ids> texts(3);
    generate(together, {3, 1}, 40, config, 5, [&](std::size_t n, std::int32_t id) {
      texts[n].push_back(id);
      return n != 1 || texts[n].size() < 7;
    });
    for (std::size_t n = 0; n < texts.size(); ++n)
      EXPECT_EQ(texts[n],
                written(context, {3, 1}, n == 1 ? 7 : 40, config, 5 + static_cast<std::uint32_t>(n)));
  }
}

// The backend draws where all logits decide. Where the largest 61 of 61 do, the sampler draws.
TEST_F(Generate, DrawsOnTheBackendWhatTheSamplerDraws) {
  for (SamplingConfig config : {SamplingConfig{.temperature = 0.7},
                                {.temperature = 0.7, .top_p = 0.5},
                                {.repetition_penalty = 1.5, .temperature = 0.7}}) {
    const Ids text = written(context, {3}, 60, config);
    config.top_k = kVocabulary;
    EXPECT_EQ(text, written(context, {3}, 60, config));
  }
}

TEST_F(Generate, HasTheSeedOfTheProgramsUnlessOneIsGiven) {
  EXPECT_EQ(written(context, {3}, 40, {}), written(context, {3}, 40, {.seed = 1337}));
}

// Rank 0 of two ranks. The other rank has the same logits, except that `difference` times its absolute value
// is added to the largest.
class TwoRanks final : public Communicator {
 public:
  TwoRanks(RankGroup& group, Backend& backend) : Communicator(group), backend_(backend) {}
  std::unique_ptr<Pending> all_reduce(const Tensor& tensor) override {
    std::vector<float> sum = to_host<float>(backend_, tensor);
    const auto larger = [](float a, float b) { return std::abs(a) < std::abs(b); };
    const auto largest = std::ranges::max_element(sum, larger);
    const float added = difference * std::abs(*largest);
    for (float& element : sum) element *= 2;
    *largest += added;
    upload<float>(backend_, tensor, sum);
    return std::make_unique<Done>();
  }
  std::unique_ptr<Communicator> split(int, int) override { return nullptr; }
  void broadcast(const Tensor&, int) override {}
  std::unique_ptr<Pending> reduce_scatter(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> all_gather(const Tensor&) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> send(const Tensor&, int) override { return std::make_unique<Done>(); }
  std::unique_ptr<Pending> receive(const Tensor&, int) override { return std::make_unique<Done>(); }

  float difference = 0;

 private:
  Backend& backend_;
};

// Each rank differs from the mean by half of the difference between the two ranks.
TEST(Context, TakesTheMeanOfRanksThatDifferByRounding) {
  const auto backend = make_cpu_backend(1);
  Gpt2 model(*backend, tiny(12));
  model.parameters().initialize(5);
  const Ids text = {3, 1, 4};
  AlikeRanks group(0, 2);
  TwoRanks ranks(group, *backend);
  const auto logits = [&](float difference) {
    ranks.difference = difference;
    return logits_after(Context(*backend, model, ranks), text);
  };
  const auto complaint = [&](float difference) -> std::string {
    try {
      logits(difference);
      return "";
    } catch (const AgreedFailure& error) {
      return error.what();
    }
  };
  const std::vector<float> own = logits_after(Context(*backend, model, alone), text), same = logits(0);
  EXPECT_EQ(same, own);
  const Ids other = {3, 1, 5};
  EXPECT_EQ(Context(*backend, model, ranks, 2).next_logits(std::array{text, other}),
            (std::vector{own, logits_after(Context(*backend, model, alone), other)}));
  const std::vector<float> mean = logits(1.5e-3f);
  EXPECT_NEAR(relative_error(as_values(mean), as_values(own)), 0, 0.75e-3);
  EXPECT_NE(mean, own);
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_EQ(complaint(sign * 1.9e-3f), "");
    const std::string says = complaint(sign * 2.1e-3f);
    EXPECT_TRUE(says.starts_with("the logits of rank 0 differ by ")) << says;
    EXPECT_TRUE(says.ends_with(" from the mean over ranks; do all ranks have the same model?")) << says;
  }
  backend->fill(model.parameters().weights(), std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(complaint(0), "the logits of rank 0 are not finite");
}

// With zero weights, all tokens have the same probability.
TEST_F(Generate, DrawsEachTokenAnew) {
  backend->fill(model.parameters().weights(), 0);
  const Ids text = written(context, {3}, 400, {});
  std::set<std::int32_t> different(text.begin(), text.end());
  EXPECT_GT(std::ssize(different), kVocabulary / 2);
}

TEST_F(Generate, EndsWhenItIsToldTo) {
  int tokens = 0;
  generate(context, {3}, 40, {}, 0, [&](std::size_t, std::int32_t) { return ++tokens < 7; });
  EXPECT_EQ(tokens, 7);
}

// A group of one process that records its phases.
class Phases final : public RankGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override {}
  void broadcast(std::span<std::byte>, int) override {}
  void all_gather(std::span<const std::byte>, std::span<std::byte>) override {}
  void enter(const char* phase) override { entered.emplace_back(phase); }
  std::vector<std::string> entered;
};

TEST_F(Generate, IsWatchedWhileItComputesAndNotWhileItIsRead) {
  Phases group;
  SelfCommunicator communicator(group);
  Context watched(*backend, model, communicator);
  generate(watched, {3}, 2, {}, 0, [&](std::size_t, std::int32_t) {
    EXPECT_EQ(group.entered.back(), kUnwatched);
    return true;
  });
  EXPECT_EQ(group.entered, (std::vector<std::string>{"generation", kUnwatched, "generation", kUnwatched}));
}

TEST_F(Generate, RefusesLogitsThatAreNotFinite) {
  backend->fill(model.parameters().weights(), std::numeric_limits<double>::quiet_NaN());
  EXPECT_THROW(written(context, {3}, 1, {}), std::runtime_error);
}

TEST(Gpt2, ReadsNarrowMatrices) {
  const auto backend = make_cpu_backend(2);
  for (const auto& [dtype, largest] : {std::pair(DType::bf16, 1e-2), std::pair(DType::i8, 8e-2)}) {
    Gpt2 model(*backend, tiny(12), DType::f32, 1, Purpose::inference);
    model.parameters().initialize(5);
    Context context(*backend, model, alone);
    const Ids text = {3, 1, 4, 1, 5};
    const Values exact = as_values(logits_after(context, text));
    model.narrow_matrices(dtype);
    Context rounded(*backend, model, alone);
    const double error = relative_error(as_values(logits_after(rounded, text)), exact);
    EXPECT_GT(error, 1e-4) << dtype;     // it was used
    EXPECT_LT(error, largest) << dtype;  // measured: 3.4e-3 and 3.7e-2
  }
}

TEST(Gpt2, HasNoSecondCopyOfNarrowMatrices) {
  const auto backend = make_cpu_backend(1);
  const std::size_t before = backend->memory_stats().bytes_reserved;
  Gpt2 model(*backend, tiny(12), DType::f32, 1, Purpose::inference);
  model.parameters().initialize(5);
  const auto in_use = [&] { return backend->memory_stats().bytes_in_use - before; };
  const auto reserved = [&] { return backend->memory_stats().bytes_reserved - before; };
  const std::size_t in_f32 = in_use();
  model.narrow_matrices(DType::i8);
  EXPECT_LT(in_use(), in_f32 / 2);  // the position embedding and the vectors stay f32
  backend->release_free_memory();
  EXPECT_EQ(reserved(), in_use());
  EXPECT_FALSE(model.parameters().weights().defined());
}

// What `dtype` keeps of a row of a matrix.
void round_row(std::span<float> row, DType dtype) {
  if (dtype == DType::bf16) {
    for (float& value : row) value = float_of_bf16(bf16_of_float(value));
    return;
  }
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  const float scale = largest / 127;
  for (float& value : row) value = scale == 0 ? 0 : scale * std::nearbyint(value / scale);
}

// With narrow matrices, the model computes what an f32 model with rounded matrices does, but for the order of
// sums.
void expect_every_matrix_narrow(const std::unique_ptr<Backend>& backend, const Gpt2Config& config,
                                DType dtype) {
  Gpt2 model(*backend, config, DType::f32, 1, Purpose::inference), rounded(*backend, config);
  model.parameters().initialize(5);
  rounded.parameters().initialize(5);
  const ParameterTable& table = rounded.parameters().table();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (!table[i].decays() || table[i].name == "wpe.weight") continue;
    const Tensor weight = rounded.parameters().var(i).value();
    std::vector<float> values = to_host<float>(*backend, weight);
    const auto columns = static_cast<std::size_t>(weight.shape()[1]);
    for (std::size_t at = 0; at < values.size(); at += columns)
      round_row(std::span(values).subspan(at, columns), dtype);
    upload<float>(*backend, weight, values);
  }
  model.narrow_matrices(dtype);
  Context context(*backend, model, alone), expected(*backend, rounded, alone);
  for (const Ids& text : {Ids{3, 1, 4, 1, 5}, Ids{9}}) {  // several rows at a time, and one
    EXPECT_LT(relative_error(as_values(logits_after(context, text)), as_values(logits_after(expected, text))),
              1e-6);
  }
}

TEST(Gpt2, ReadsEveryNarrowMatrix) {
  for (const DType dtype : {DType::bf16, DType::i8}) {
    expect_every_matrix_narrow(make_cpu_backend(2), tiny(12), dtype);
    expect_every_matrix_narrow(make_cpu_backend(2), untied_tiny(12), dtype);
    expect_every_matrix_narrow(make_naive_backend(), tiny(12), dtype);
  }
}

std::string passed(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
                   bool* found) {
  StopStrings filter(stops);
  std::string text;
  for (const std::string& piece : pieces) text += filter.push(piece);
  text += filter.finish();
  *found = filter.found();
  return text;
}

TEST(StopStrings, CutTheTextBeforeTheFirstOne) {
  bool found = false;
  EXPECT_EQ(passed({"END"}, {"one E", "N", "D two"}, &found), "one ");
  EXPECT_TRUE(found);
  EXPECT_EQ(passed({"END"}, {"one E", "N", "d"}, &found), "one ENd");
  EXPECT_FALSE(found);
  EXPECT_EQ(passed({"END"}, {"one EN"}, &found), "one EN");
  EXPECT_FALSE(found);
  EXPECT_EQ(passed({"abc", "b"}, {"xa", "bc"}, &found), "x");
  EXPECT_EQ(passed({"aab"}, {"a", "a", "a", "b"}, &found), "a");
  EXPECT_EQ(passed({"x"}, {"x", "y", "z"}, &found), "");
  EXPECT_EQ(passed({}, {"x", "y"}, &found), "xy");
  EXPECT_FALSE(found);
}

TEST(StopStrings, HoldBackOnlyWhatMayBeOne) {
  StopStrings filter({"\n\n", "END"});
  EXPECT_EQ(filter.push("a\n"), "a");
  EXPECT_EQ(filter.push("b"), "\nb");
  EXPECT_EQ(filter.push("E"), "");
  EXPECT_EQ(filter.push("EN"), "E");
  EXPECT_EQ(filter.finish(), "EN");
}

}  // namespace
}  // namespace stagegpt::test
