// What inspect() finds in models whose attention and predictions are known.
#include "tools/inspect/inspection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "common/base/json.h"
#include "common/data/tokenizers/char_tokenizer.h"
#include "common/model/gpt2.h"
#include "stage0_serial/cpu_backend.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/program.h"
#include "tests/support/tensors.h"
#include "tools/inspect/layer_history.h"
#include "tools/inspect/page.h"
#include "tools/page/document.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;

Gpt2Config random_config() {
  return {.vocab_size = 31, .block_size = 12, .n_layer = 3, .n_head = 2, .n_embd = 16};
}

// Writes values, without padding, into a parameter.
void set(Backend& backend, Gpt2& model, const std::string& name, Values values) {
  const Tensor& tensor = model.parameters().var(name).value();
  values.resize(static_cast<std::size_t>(tensor.numel()));
  set_values(backend, tensor, values);
}

Gpt2 random_model(Backend& backend, const Gpt2Config& config) {
  Gpt2 model(backend, config, DType::f32, 1, Purpose::inference);
  for (std::size_t i = 0; i < model.parameters().table().size(); ++i) {
    const Parameter& row = model.parameters().table()[i];
    set(backend, model, row.name,
        random_values(7, static_cast<std::uint32_t>(i), row.shape.numel(), 0.3, row.init_mean));
  }
  return model;
}

constexpr std::int64_t kPlantedTokens = 8;  // tokens
constexpr double kScore = 6;                // of the head that attends to the token before

// One layer of two heads over channels that hold the position alone, one channel for each. Its layernorm
// passes these on as they are. Head 0 has the query of token t equal to the key of token t - 1, times kScore;
// that of token 0 matches none. Head 1 has no queries.
Gpt2 previous_token_model(Backend& backend) {
  constexpr std::int64_t C = 2 * kPlantedTokens, HS = kPlantedTokens;
  const Gpt2Config config{.vocab_size = 5,
                          .block_size = kPlantedTokens,
                          .n_layer = 1,
                          .n_head = 2,
                          .n_embd = C,
                          .scale_attn_weights = false};
  Gpt2 model(backend, config, DType::f32, 1, Purpose::inference);
  Values wpe(kPlantedTokens * C), qkv(3 * C * C);
  for (std::int64_t t = 0; t < kPlantedTokens; ++t) wpe[static_cast<std::size_t>(t * C + t)] = 1;
  for (std::int64_t t = 1; t < kPlantedTokens; ++t)
    qkv[static_cast<std::size_t>((t - 1) * C + t)] = kScore;                                 // queries
  for (std::int64_t t = 0; t < HS; ++t) qkv[static_cast<std::size_t>((C + t) * C + t)] = 1;  // keys
  // A row has mean 1/C and variance 1/C - 1/C²; its normalised 1 is `spike` above its normalised zeros.
  const double mean = 1.0 / C, rstd = 1 / std::sqrt(mean - mean * mean + config.layer_norm_epsilon);
  set(backend, model, "wpe.weight", wpe);
  set(backend, model, "h.0.attn.c_attn.weight", qkv);
  set(backend, model, "h.0.ln_1.weight", Values(C, 1 / rstd));
  set(backend, model, "h.0.ln_1.bias", Values(C, mean));
  return model;
}

TEST(Inspection, finds_a_head_that_attends_to_the_token_before) {
  const auto backend = make_cpu_backend(1);
  const Gpt2 model = previous_token_model(*backend);
  const Inspection found = inspect(*backend, model, Ids{0, 1, 2, 3, 4, 3, 2, 1}, 1);
  double previous = 0;
  for (std::int64_t t = 0; t < kPlantedTokens; ++t) {
    const double others = static_cast<double>(t);  // keys with the score 0, where one has kScore
    const double expected = std::exp(kScore) / (std::exp(kScore) + others);
    for (std::int64_t s = 0; s < kPlantedTokens; ++s) {
      const std::size_t at = static_cast<std::size_t>(t * kPlantedTokens + s);
      const double planted = t == 0 ? 1 : s + 1 == t ? expected : (1 - expected) / others;
      EXPECT_NEAR(found.head(0, 0).weights[at], s > t ? 0 : planted, 1e-5) << t << ' ' << s;
      EXPECT_NEAR(found.head(0, 1).weights[at], s > t ? 0 : 1 / (others + 1), 1e-6) << t << ' ' << s;
    }
    if (t > 0) previous += expected / (kPlantedTokens - 1);
  }
  EXPECT_NEAR(found.head(0, 0).previous, previous, 1e-5);
  EXPECT_LT(found.head(0, 0).spread, 0.1);
  EXPECT_NEAR(found.head(0, 1).spread, 1, 1e-6);
  EXPECT_NEAR(found.head(0, 1).self, found.head(0, 1).previous, 1e-6);
  EXPECT_NEAR(found.head(0, 1).self, found.head(0, 1).first, 1e-6);
}

// What a branch adds is the difference between the stream after it and before it; one without an output
// projection adds nothing.
TEST(Inspection, measures_what_each_branch_adds) {
  const auto backend = make_cpu_backend(1);
  const Gpt2Config config = random_config();
  Gpt2 model = random_model(*backend, config);
  for (const char* name : {"h.1.mlp.c_proj.weight", "h.1.mlp.c_proj.bias"}) set(*backend, model, name, {});
  const Ids ids = random_ids(1, 0, 9, 31);
  std::vector<Values> streams;  // before the first branch, after it, …
  Tape tape(*backend, Tape::Mode::inference);
  tape.on_op([&](std::string_view op, std::span<const Var>, std::span<const Var> outs) {
    if (op == "embedding" || op == "residual_layernorm")
      streams.push_back(to_values(*backend, outs[0].value()));
  });
  model.logits(tape, to_tensor(*backend, {1, std::ssize(ids)}, ids));
  ASSERT_EQ(streams.size(), 7u);
  const auto added = [&](std::size_t branch) {
    double difference = 0, before = 0;
    for (std::size_t i = 0; i < streams[branch].size(); ++i) {
      difference += std::pow(streams[branch + 1][i] - streams[branch][i], 2);
      before += std::pow(streams[branch][i], 2);
    }
    return std::sqrt(difference / before);
  };
  const std::vector<AddedByLayer> found = inspect(*backend, model, ids, 1).added;
  ASSERT_EQ(found.size(), 3u);
  for (std::size_t l = 0; l < 3; ++l) {
    EXPECT_NEAR(found[l].attention, added(2 * l), 1e-5) << l;
    EXPECT_NEAR(found[l].mlp, added(2 * l + 1), 1e-5) << l;
  }
  EXPECT_EQ(found[1].mlp, 0);
  EXPECT_GT(found[1].attention, 1e-3);
}

// The attention times the values is what the attention kernel returns; rows add up to 1 and see no later key.
TEST(Inspection, attention_is_that_of_the_kernel) {
  Gpt2Config config = random_config();
  config.scale_attn_by_inverse_layer_idx = true;
  for (const auto& backend : {make_naive_backend(), make_cpu_backend(1)}) {
    const Gpt2 model = random_model(*backend, config);
    const Ids ids = random_ids(1, 0, 9, 31);
    const std::int64_t T = std::ssize(ids), C = config.n_embd, HS = C / config.n_head;
    std::vector<Values> qkv, out;
    Tape tape(*backend, Tape::Mode::inference);
    tape.on_op([&](std::string_view op, std::span<const Var> inputs, std::span<const Var> outs) {
      if (op != "attention") return;
      qkv.push_back(to_values(*backend, inputs[0].value()));
      out.push_back(to_values(*backend, outs[0].value()));
    });
    model.logits(tape, to_tensor(*backend, {1, T}, ids));

    const Inspection found = inspect(*backend, model, ids, 1);
    for (int l = 0; l < config.n_layer; ++l) {
      for (std::int64_t c = 0; c < C; ++c) {
        const HeadAttention& head = found.head(l, static_cast<int>(c / HS));
        for (std::int64_t t = 0; t < T; ++t) {
          double sum = 0, mean = 0;
          for (std::int64_t s = 0; s < T; ++s) {
            const double weight = head.weights[static_cast<std::size_t>(t * T + s)];
            sum += weight;
            mean +=
                weight * qkv[static_cast<std::size_t>(l)][static_cast<std::size_t>(s * 3 * C + 2 * C + c)];
            if (s > t) {
              EXPECT_EQ(weight, 0);
            }
          }
          EXPECT_NEAR(sum, 1, 1e-6);
          EXPECT_NEAR(mean, out[static_cast<std::size_t>(l)][static_cast<std::size_t>(t * C + c)], 1e-5);
        }
      }
    }
  }
}

// Behind the last layer the lens shows what the model predicts. Before the first one it shows what is
// computed here from the embedding.
TEST(Inspection, lens_shows_the_logits_of_the_model_and_of_the_embedding) {
  for (const bool tied : {true, false}) {
    const auto backend = make_cpu_backend(1);
    Gpt2Config config = random_config();
    config.tie_word_embeddings = tied;
    const Gpt2 model = random_model(*backend, config);
    const Ids ids = random_ids(2, 0, 6, 31);
    const std::int64_t T = std::ssize(ids), V = config.vocab_size, C = config.n_embd;
    Tape tape(*backend, Tape::Mode::inference);
    const Tensor logits = model.logits(tape, to_tensor(*backend, {1, T}, ids)).value();
    const auto parameter = [&](const char* name) {
      return to_values(*backend, model.parameters().var(name).value());
    };
    const Values all = to_values(*backend, logits), wte = parameter("wte.weight"),
                 wpe = parameter("wpe.weight"), weight = parameter("ln_f.weight"),
                 bias = parameter("ln_f.bias"), head = tied ? wte : parameter("lm_head.weight");

    const Inspection found = inspect(*backend, model, ids, static_cast<int>(V));
    ASSERT_EQ(found.lens.size(), 4u);
    for (std::int64_t t = 0; t < T; ++t) {
      Values x(static_cast<std::size_t>(C));
      double mean = 0, variance = 0;
      for (std::int64_t c = 0; c < C; ++c) {
        const double e = wte[static_cast<std::size_t>(ids[static_cast<std::size_t>(t)] * C + c)] +
                         wpe[static_cast<std::size_t>(t * C + c)];
        x[static_cast<std::size_t>(c)] = e;
        mean += e / static_cast<double>(C);
      }
      for (const double e : x) variance += (e - mean) * (e - mean) / static_cast<double>(C);
      Values first(static_cast<std::size_t>(V)),
          last(all.begin() + t * logits.shape()[-1], all.begin() + t * logits.shape()[-1] + V);
      for (std::size_t v = 0; v < first.size(); ++v) {
        for (std::size_t c = 0; c < x.size(); ++c) {
          const double norm = (x[c] - mean) / std::sqrt(variance + config.layer_norm_epsilon);
          first[v] += (norm * weight[c] + bias[c]) * head[v * x.size() + c];
        }
      }
      for (const auto& [layer, expected] : {std::pair(std::size_t{0}, first), {std::size_t{3}, last}}) {
        const LensPosition& position = found.lens[layer][static_cast<std::size_t>(t)];
        double sum = 0, entropy = 0;
        for (const double logit : expected) sum += std::exp(logit);
        ASSERT_EQ(std::ssize(position.top), V);
        for (std::size_t i = 0; i < position.top.size(); ++i) {
          const double p = std::exp(expected[static_cast<std::size_t>(position.top[i].id)]) / sum;
          EXPECT_NEAR(position.top[i].probability, p, 1e-5) << layer << ' ' << t;
          entropy -= p * std::log(p);
          if (i > 0) {
            EXPECT_GE(position.top[i - 1].probability, position.top[i].probability);
          }
          if (t + 1 < T && position.top[i].id == ids[static_cast<std::size_t>(t) + 1]) {
            EXPECT_EQ(position.next_rank, static_cast<std::int64_t>(i) + 1);
            EXPECT_EQ(position.next_probability, position.top[i].probability);
          }
        }
        EXPECT_NEAR(position.entropy, entropy, 1e-4);
        EXPECT_EQ(position.next_rank.has_value(), t + 1 < T);
      }
    }
  }
}

TEST(Inspection, of_logits_that_are_not_finite_names_the_layer) {
  const auto backend = make_cpu_backend(1);
  Gpt2 model = random_model(*backend, random_config());
  set(*backend, model, "h.1.mlp.c_proj.bias", Values(16, std::nan("")));
  try {
    inspect(*backend, model, Ids{1, 2}, 1);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the logits after layer h.1 are not finite");
  }
}

TEST(Inspection, takes_as_many_tokens_as_a_page_has_room_for) {
  const auto most = [](int n_layer, int n_head, std::int64_t block_size) {
    return most_inspected_tokens({.block_size = block_size, .n_layer = n_layer, .n_head = n_head});
  };
  EXPECT_EQ(most(12, 12, 1024), 117);
  EXPECT_EQ(most(48, 25, 1024), 40);
  EXPECT_EQ(most(1, 1, 1024), 256);
  EXPECT_EQ(most(4, 4, 64), 64);
}

TEST(Inspection, page_of_the_longest_text_is_below_two_megabytes) {
  const auto backend = make_cpu_backend(1);
  const Gpt2Config config{.vocab_size = 128, .block_size = 1024, .n_layer = 12, .n_head = 12, .n_embd = 24};
  const Gpt2 model = random_model(*backend, config);
  PieceCounts letters;
  count_characters("abcdefgh", letters);
  const std::int64_t T = most_inspected_tokens(config);
  const Findings findings{.model = {"model", "machine", 1, config},
                          .inspection = inspect(*backend, model, random_ids(3, 0, T, 128), 20),
                          .tape = trace_tape(config, 1, T),
                          .run = {}};
  const std::string page = inspection_page(findings, *make_char_tokenizer(letters));
  EXPECT_LT(page.size(), 1'900'000u);  // a run's layers take less than 100 kB
  EXPECT_GT(page.size(), 1'300'000u);
  EXPECT_NE(page.find("data.run.medians[measure.field] ?? NaN"), std::string::npos);  // LayerHistory, below
}

// The ops of a block, and whose outputs they read, as gpt2.cpp says it.
TEST(Tape, has_the_ops_of_the_model_with_what_they_read) {
  constexpr std::int64_t B = 2, T = 8, C = 16, V = 128;
  const Gpt2Config config = random_config();
  const TapeGraph tape = trace_tape(config, B, T);
  const auto expect = [&](std::size_t i, std::string_view op, const char* layer,
                          std::vector<std::size_t> inputs, std::vector<Shape> outputs) {
    const TapeNode& node = tape.nodes.at(i);
    EXPECT_EQ(node.op, op) << i;
    EXPECT_EQ(node.layer, layer) << i;
    EXPECT_EQ(node.inputs, inputs) << i;
    EXPECT_EQ(node.outputs, outputs) << i;
    std::size_t bytes = 0;
    for (const Shape& shape : outputs) bytes += 4 * static_cast<std::size_t>(shape.numel());
    EXPECT_EQ(node.bytes, bytes) << i;
  };
  ASSERT_EQ(tape.nodes.size(), 2 + 7 * 3 + 2u);
  expect(0, "embedding", "wte, wpe", {}, {{B, T, C}});
  expect(1, "layernorm", "h.0.ln_1", {0}, {{B, T, C}});
  expect(2, "linear", "h.0.attn.c_attn", {1}, {{B, T, 3 * C}});
  expect(3, "attention", "", {2}, {{B, T, C}});
  expect(4, "linear", "h.0.attn.c_proj", {3}, {{B, T, C}});
  expect(5, "residual_layernorm", "h.0.ln_2", {0, 4}, {{B, T, C}, {B, T, C}});
  expect(6, "linear", "h.0.mlp.c_fc", {5}, {{B, T, 4 * C}});
  expect(7, "activation_linear", "h.0.mlp.c_proj", {6}, {{B, T, C}});
  expect(8, "residual_layernorm", "h.1.ln_1", {5, 7}, {{B, T, C}, {B, T, C}});
  expect(23, "linear", "wte", {22}, {{B, T, V}});
  EXPECT_EQ(tape.nodes[2].parameters,
            (std::vector<std::string>{"h.0.attn.c_attn.weight", "h.0.attn.c_attn.bias"}));
  EXPECT_EQ(tape.nodes[24].inputs, std::vector<std::size_t>{23});
  // The allocator rounds each of the two arenas up to a multiple of 512 bytes or more.
  const auto arenas = 2 * 4 * static_cast<std::size_t>(gpt2_parameter_table(config).arena_size(/*parts=*/1));
  EXPECT_GE(tape.weights, arenas);
  EXPECT_LT(tape.weights, arenas + arenas / 10);
  std::size_t most = 0;
  for (const TapeNode& node : tape.nodes) most = std::max(most, node.in_use);
  EXPECT_GE(tape.peak, most);
  EXPECT_GE(tape.nodes[1].in_use, tape.nodes[0].bytes + tape.nodes[1].bytes);
}

// A block is judged beside at least two others.
TEST(LayerHistory, has_the_median_of_three_blocks_or_more) {
  const ScratchDirectory directory;
  const auto median = [&](std::vector<double> norms) {
    Json layers = Json::array({{{"name", "wte"}, {"grad_norm", 100.0}}});
    for (std::size_t i = 0; i < norms.size(); ++i)
      layers.push_back({{"name", concat("h.", i)}, {"grad_norm", norms[i]}});
    const Json line = {{"step", 1}, {"layers", layers}};
    return layer_history(directory.write("metrics.jsonl", line.dump() + "\n"))["medians"]["grad_norm"];
  };
  EXPECT_EQ(median({4, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(median({4, 1}).is_null());
}

TEST(Base64, has_the_examples_of_rfc_4648) {
  const auto of = [](std::string_view text) {
    return base64(std::span(reinterpret_cast<const std::uint8_t*>(text.data()), text.size()));
  };
  EXPECT_EQ(of(""), "");
  EXPECT_EQ(of("f"), "Zg==");
  EXPECT_EQ(of("fo"), "Zm8=");
  EXPECT_EQ(of("foo"), "Zm9v");
  EXPECT_EQ(of("foob"), "Zm9vYg==");
  EXPECT_EQ(of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(of("\xff\xfe\xfd"), "//79");
}

}  // namespace
}  // namespace stagegpt::test
