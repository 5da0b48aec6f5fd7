#include "common/model/parameters.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "common/model/presets.h"
#include "common/random/philox.h"
#include "stage0_serial/naive_backend.h"
#include "tests/support/stop_request.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

const Gpt2Config kTiny = {.vocab_size = 101, .block_size = 20, .n_layer = 2, .n_head = 3, .n_embd = 48};

TEST(ParameterTableTest, has_the_names_and_shapes_of_hugging_face_in_its_order) {
  Gpt2Config config = kTiny;
  config.n_layer = 1;
  const std::vector<std::pair<std::string, Shape>> expected = {
      {"wte.weight", {101, 48}},
      {"wpe.weight", {20, 48}},
      {"h.0.ln_1.weight", {48}},
      {"h.0.ln_1.bias", {48}},
      {"h.0.attn.c_attn.weight", {144, 48}},
      {"h.0.attn.c_attn.bias", {144}},
      {"h.0.attn.c_proj.weight", {48, 48}},
      {"h.0.attn.c_proj.bias", {48}},
      {"h.0.ln_2.weight", {48}},
      {"h.0.ln_2.bias", {48}},
      {"h.0.mlp.c_fc.weight", {192, 48}},
      {"h.0.mlp.c_fc.bias", {192}},
      {"h.0.mlp.c_proj.weight", {48, 192}},
      {"h.0.mlp.c_proj.bias", {48}},
      {"ln_f.weight", {48}},
      {"ln_f.bias", {48}},
  };
  const ParameterTable table = gpt2_parameter_table(config);
  ASSERT_EQ(table.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(table[i].name, expected[i].first);
    EXPECT_EQ(table[i].shape, expected[i].second) << table[i].name;
    EXPECT_EQ(table.find(table[i].name), static_cast<int>(i));
  }
  EXPECT_EQ(table.find("lm_head.weight"), -1);
}

TEST(ParameterTableTest, ends_with_an_untied_head) {
  Gpt2Config config = kTiny;
  config.tie_word_embeddings = false;
  config.n_inner = 31;
  const ParameterTable table = gpt2_parameter_table(config);
  ASSERT_EQ(table.size(), 2 + 12 * 2 + 2 + 1);
  const Parameter& head = table[table.size() - 1];
  EXPECT_EQ(head.name, "lm_head.weight");
  EXPECT_EQ(head.shape, (Shape{101, 48}));
  EXPECT_EQ(head.arena_shape(), (Shape{128, 48}));
  EXPECT_EQ(head.init_std, table[0].init_std);
  EXPECT_EQ(table[table.find("h.1.mlp.c_fc.weight")].shape, (Shape{31, 48}));
  EXPECT_EQ(table[table.find("h.1.mlp.c_fc.bias")].shape, (Shape{31}));
  EXPECT_EQ(table[table.find("h.1.mlp.c_proj.weight")].shape, (Shape{48, 31}));
}

// num_parameters() of transformers 5.23.0.
TEST(ParameterTableTest, counts_the_parameters_of_variants) {
  Gpt2Config config{.block_size = 128, .n_layer = 2, .n_head = 4, .n_embd = 64};
  EXPECT_EQ(gpt2_parameter_table(config).numel(), 3324736);
  config.n_inner = 200;
  EXPECT_EQ(gpt2_parameter_table(config).numel(), 3310288);
  config.tie_word_embeddings = false;
  EXPECT_EQ(gpt2_parameter_table(config).numel(), 6526736);
  config.n_inner = 0;
  EXPECT_EQ(gpt2_parameter_table(config).numel(), 6541184);
}

TEST(ParameterTableTest, repeats_a_layer_for_each) {
  const ParameterTable table = gpt2_parameter_table(kTiny);
  EXPECT_EQ(table.size(), 2 + 12 * 2 + 2);
  EXPECT_LT(table.find("h.0.mlp.c_proj.bias"), table.find("h.1.ln_1.weight"));
}

TEST(ParameterTableTest, counts_the_parameters_of_the_published_models) {
  const std::map<std::string_view, std::int64_t> expected = {
      {"gpt2", 124439808}, {"gpt2-medium", 354823168}, {"gpt2-large", 774030080}, {"gpt2-xl", 1557611200}};
  std::size_t found = 0;
  for (const Preset& preset : presets()) {
    const auto row = expected.find(preset.name);
    if (row == expected.end()) continue;
    ++found;
    EXPECT_EQ(gpt2_parameter_table(preset.config).numel(), row->second) << preset.name;
  }
  EXPECT_EQ(found, expected.size());
}

TEST(ParameterTableTest, places_parameters_in_order_aligned_and_apart) {
  const ParameterTable table = gpt2_parameter_table(kTiny);
  std::int64_t end = 0;
  for (const Parameter& row : table.rows()) {
    EXPECT_EQ(row.offset % ParameterTable::kAlignment, 0) << row.name;
    EXPECT_GE(row.offset, end) << row.name;
    EXPECT_LT(row.offset, end + ParameterTable::kAlignment) << row.name;
    end = row.offset + row.arena_shape().numel();
  }
  EXPECT_EQ(table[0].arena_shape(), (Shape{128, 48}));
  for (const int ranks : {1, 2, 3, 8}) {
    EXPECT_GE(table.arena_size(ranks), end);
    EXPECT_EQ(table.arena_size(ranks) % (ranks * ParameterTable::kAlignment), 0) << ranks;
  }
}

TEST(ParameterTableTest, matrices_decay_and_vectors_do_not) {
  const ParameterTable table = gpt2_parameter_table(kTiny);
  constexpr double kNone = -1, kDecay = 0.1;
  for (const int parts : {1, 3, 8}) {
    const std::int64_t part = table.arena_size(parts) / parts;
    Values decay(static_cast<std::size_t>(table.arena_size(parts)), kNone);
    for (std::int64_t begin = 0; begin < table.arena_size(parts); begin += part) {
      for (const DecayRange& range : table.decay_ranges(kDecay, {begin, begin + part})) {
        ASSERT_LE(range.end, part);
        for (std::int64_t i = begin + range.begin; i < begin + range.end; ++i) {
          EXPECT_EQ(decay[i], kNone) << "element " << i << " is in two ranges";
          decay[i] = range.weight_decay;
        }
      }
    }
    for (const Parameter& row : table.rows()) {
      for (std::int64_t i = 0; i < row.arena_shape().numel(); ++i) {
        ASSERT_EQ(decay[row.offset + i], row.shape.rank() == 2 ? kDecay : 0) << row.name << ' ' << i;
      }
    }
  }
}

TEST(ParameterTableTest, freezes_by_pattern) {
  ParameterTable table = gpt2_parameter_table(kTiny);
  const std::int64_t all = table.numel();
  EXPECT_EQ(table.trained_numel(), all);
  EXPECT_EQ(table.freeze("lm_head*"), 0);
  EXPECT_EQ(table.freeze("h.?.ln_[12].bias"), 4);
  EXPECT_EQ(table.trained_numel(), all - 4 * 48);
  EXPECT_EQ(table.freeze("h.1.*"), 12);
  EXPECT_EQ(table.freeze("h.1"), 0);  // the whole name
  EXPECT_EQ(table.freeze("wte.weight"), 1);
  EXPECT_EQ(table.trained_numel(), all - 101 * 48 - 2 * 48 - (12 * 48 * 48 + 13 * 48));
  for (const Parameter& row : table.rows()) {
    const bool frozen = row.name.starts_with("h.1.") || row.name.starts_with("wte") ||
                        row.name == "h.0.ln_1.bias" || row.name == "h.0.ln_2.bias";
    EXPECT_EQ(row.trained, !frozen) << row.name;
  }
  EXPECT_EQ(table.numel(), all);
}

TEST(ParameterTableTest, leaves_frozen_parameters_out_of_the_optimizers_ranges) {
  Gpt2Config config = kTiny;
  config.frozen = {"h.0.ln_1.bias", "h.1.attn.*", "ln_f.*"};
  const ParameterTable table = gpt2_parameter_table(config);
  for (const int parts : {1, 3}) {
    const std::int64_t part = table.arena_size(parts) / parts;
    std::vector<bool> updated(static_cast<std::size_t>(table.arena_size(parts)));
    for (std::int64_t begin = 0; begin < table.arena_size(parts); begin += part) {
      for (const DecayRange& range : table.decay_ranges(0, {begin, begin + part}))
        std::fill(updated.begin() + begin + range.begin, updated.begin() + begin + range.end, true);
    }
    for (const Parameter& row : table.rows()) {
      const auto begin = updated.begin() + row.offset, end = begin + row.arena_shape().numel();
      EXPECT_EQ(std::count(begin, end, row.trained), end - begin) << row.name;
    }
  }
}

TEST(ParameterTableTest, refuses_a_name_twice) {
  ParameterTable table;
  table.add({"a", {3}, 3});
  EXPECT_THROW(table.add({"a", {4}, 4}), InternalError);
  EXPECT_THROW(table.add({"b", {4}, 3}), InternalError);
}

class ParametersTest : public testing::Test {
 protected:
  Values values(const Parameters& parameters, const char* name) {
    return to_values(*backend_, parameters.var(name).value());
  }
  Values initial(DType dtype, std::uint64_t seed, int ranks = 1) {
    Parameters parameters(*backend_, gpt2_parameter_table(kTiny), dtype, ranks);
    parameters.initialize(seed);
    Values values = to_values(*backend_, parameters.weights());
    values.resize(static_cast<std::size_t>(parameters.table().arena_size(1)));
    return values;
  }
  // Expects that the mean and the standard deviation of `n` numbers from N(0, std²) are within five standard
  // errors.
  void expect_normal(const Values& sample, std::size_t n, double std) {
    double sum = 0, squares = 0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += sample[i];
      squares += sample[i] * sample[i];
    }
    const double size = static_cast<double>(n);
    EXPECT_NEAR(sum / size, 0, 5 * std / std::sqrt(size));
    EXPECT_NEAR(std::sqrt(squares / size), std, 5 * std / std::sqrt(2 * size));
  }

  const std::unique_ptr<Backend> backend_ = make_naive_backend();
};

TEST_F(ParametersTest, are_not_drawn_when_a_signal_has_come) {
  Parameters parameters(*backend_, gpt2_parameter_table(kTiny), DType::f32);
  EXPECT_EXIT(exit_as_stopped([&] { parameters.initialize(1); }), testing::ExitedWithCode(kExitStopped), "");
}

TEST_F(ParametersTest, are_not_filled_with_zeros_when_a_signal_has_come) {
  EXPECT_EXIT(exit_as_stopped([&] { zero_arena(*backend_, DType::f32, 8); }),
              testing::ExitedWithCode(kExitStopped), "");
}

TEST_F(ParametersTest, are_slices_of_the_arenas) {
  const Parameters parameters(*backend_, gpt2_parameter_table(kTiny), DType::f32);
  const int i = parameters.table().find("h.1.ln_2.bias");
  const Parameter& row = parameters.table()[i];
  EXPECT_TRUE(
      parameters.var(row.name).value().same_memory(parameters.weights().slice(row.offset, row.shape)));
  EXPECT_EQ(parameters.var(i).value().shape(), row.shape);
  EXPECT_THROW(parameters.var("h.2.ln_2.bias"), InternalError);
}

TEST_F(ParametersTest, are_drawn_as_gpt2_does) {
  Parameters parameters(*backend_, gpt2_parameter_table(kTiny), DType::f64);
  parameters.initialize(1337);
  const double residual_std = 0.02 / std::sqrt(2.0 * kTiny.n_layer);
  expect_normal(values(parameters, "wte.weight"), 101 * 48, 0.02);
  expect_normal(values(parameters, "wpe.weight"), 20 * 48, 0.02);
  expect_normal(values(parameters, "h.0.attn.c_attn.weight"), 144 * 48, 0.02);
  expect_normal(values(parameters, "h.1.mlp.c_fc.weight"), 192 * 48, 0.02);
  expect_normal(values(parameters, "h.0.attn.c_proj.weight"), 48 * 48, residual_std);
  expect_normal(values(parameters, "h.1.mlp.c_proj.weight"), 192 * 48, residual_std);
  EXPECT_EQ(values(parameters, "h.0.ln_1.weight"), Values(48, 1));
  EXPECT_EQ(values(parameters, "ln_f.weight"), Values(48, 1));
  EXPECT_EQ(values(parameters, "ln_f.bias"), Values(48, 0));
  EXPECT_EQ(values(parameters, "h.1.attn.c_attn.bias"), Values(144, 0));
}

TEST_F(ParametersTest, depend_on_the_seed_alone) {
  const Values f64 = initial(DType::f64, 1);
  Values rounded;
  for (const double value : f64) rounded.push_back(static_cast<float>(value));
  EXPECT_EQ(initial(DType::f32, 1), rounded);
  EXPECT_EQ(initial(DType::f64, 1, /*ranks=*/3), f64);
  EXPECT_NE(initial(DType::f64, 2), f64);
}

// Parameters are drawn in pieces of 2^18 elements, by several threads or ranks.
TEST_F(ParametersTest, do_not_depend_on_how_the_work_is_divided) {
  ParameterTable table;
  table.add({.name = "small", .shape = {37}, .padded_rows = 37, .init_std = 0.5});
  table.add({.name = "large", .shape = {701, 1001}, .padded_rows = 768, .init_std = 0.02});
  table.add({.name = "ones", .shape = {3}, .padded_rows = 3, .init_mean = 1});
  const Parameter &large = table[1], &ones = table[2];
  const int ranks = 3;
  std::vector<float> expected(static_cast<std::size_t>(table.arena_size(ranks)));
  for (const std::size_t row : {0, 1}) {
    const RandomKey key{9, stream_id(RandomStream::init), static_cast<std::uint32_t>(row)};
    for (std::int64_t i = 0; i < table[row].shape.numel(); ++i) {
      expected[static_cast<std::size_t>(table[row].offset + i)] =
          static_cast<float>(table[row].init_std * random_normal(key, static_cast<std::uint64_t>(i)));
    }
  }
  std::fill_n(expected.begin() + ones.offset, 3, 1.0f);
  for (const int threads : {1, 3}) {
    Parameters whole(*backend_, table, DType::f32, ranks), parts(*backend_, table, DType::f32, ranks);
    whole.initialize(9, threads);
    EXPECT_TRUE(to_host<float>(*backend_, whole.weights()) == expected) << threads;
    const std::int64_t size = table.arena_size(ranks), cut = large.offset + 300'001;
    for (const ArenaRange part : {ArenaRange{0, 64}, {64, cut}, {cut, size}})
      parts.initialize(9, threads, part);
    EXPECT_TRUE(to_host<float>(*backend_, parts.weights()) == expected) << threads;
  }
}

TEST_F(ParametersTest, of_a_part_leave_the_others_alone) {
  Parameters parameters(*backend_, gpt2_parameter_table(kTiny), DType::f32);
  const Values whole = initial(DType::f32, 1);
  parameters.initialize(1, 2, {100, 3000});
  const Values part = to_values(*backend_, parameters.weights());
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(part[i], i >= 100 && i < 3000 ? whole[i] : 0) << i;
}

TEST_F(ParametersTest, finish_with_zeros_where_no_gradient_came) {
  Parameters parameters(*backend_, gpt2_parameter_table(kTiny), DType::f64);
  backend_->fill(parameters.grads(), 7);  // gradients of an earlier step
  const Var bias = parameters.var("ln_f.bias");
  Tape tape(*backend_);
  const Tensor ones = to_tensor(*backend_, DType::f64, {48}, Values(48, 1));
  tape.backward(tape.record("use", {bias}, backend_->zeros(DType::f64, {1}),
                            [&](const Tensor&, Grads g) { g.give(0, ones); }));
  parameters.finish_grads();
  EXPECT_EQ(to_values(*backend_, bias.grad()), Values(48, 1));
  for (const Parameter& row : parameters.table().rows()) {
    if (row.name == "ln_f.bias") continue;
    const Values grad = to_values(*backend_, parameters.grads().slice(row.offset, row.shape));
    EXPECT_EQ(grad, Values(grad.size(), 0)) << row.name;
  }
  parameters.clear_grads();
  EXPECT_FALSE(bias.grad_written());
}

}  // namespace
}  // namespace stagegpt::test
