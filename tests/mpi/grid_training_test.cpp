// Training on a grid of data ranks, tensor ranks and stages, compared with one process.
#include <gtest/gtest.h>

#include <cmath>

#include "common/backend/profiler.h"
#include "common/parallel/parts.h"
#include "common/parallel/whole_values.h"
#include "common/train/checkpoint_arenas.h"
#include "common/train/memory_plan.h"
#include "tests/mpi/small_run.h"
#include "tests/support/tolerance.h"
#include "tools/bench/bench.h"

namespace stagegpt::test {
namespace {

constexpr int kGridSteps = 2;

struct GridShape {
  int tensor_ranks, stages;
};

SmallSettings settings_of(const GridShape& shape) {
  return {.accumulation = 2,
          .dropout = 0.2,
          .tensor_ranks = shape.tensor_ranks,
          .n_head = 12,
          .stages = shape.stages,
          .n_layer = 3};
}

SmallRun grid_run(const SmallSettings& settings, const std::string& sync) {
  return SmallRun(settings, CommAlgorithm::ring, sync_named(sync));
}

// The training of one process that those of all grids must equal.
struct OnOneProcess {
  std::vector<StepReport> steps;
  ParameterTable table;
  std::vector<std::vector<float>> arenas;  // weights, m and v, one parameter after the other
};

OnOneProcess train_on_one_process() {
  SmallRun run(settings_of({1, 1}));
  const ParameterTable& table = run.model.parameters().table();
  OnOneProcess all{{}, table, {}};
  for (int step = 0; step < kGridSteps; ++step) all.steps.push_back(run.trainer.step());
  const Moments& moments = run.trainer.optimizer().moments();
  for (const Tensor& arena : {run.model.parameters().weights(), moments.m, moments.v}) {
    std::vector<float>& whole = all.arenas.emplace_back();
    for (const Parameter& row : table.rows()) {
      const auto elements = run.elements(arena.slice(row.offset, row.shape));
      whole.insert(whole.end(), elements.begin(), elements.end());
    }
  }
  return all;
}

double l2_norm(const std::vector<float>& x) {
  double sum = 0;
  for (const float element : x) sum += static_cast<double>(element) * element;
  return std::sqrt(sum);
}

class GridTrainingWithZero1 : public testing::Test {
 protected:
  // Calls test(shape) for the grids of these ranks that divide a model.
  template <class Test>
  static void for_each_grid(const Test& test) {
    for (const GridShape shape : {GridShape{2, 1}, {3, 1}, {4, 1}, {1, 2}, {1, 3}, {2, 2}}) {
      if (ranks().size() % (shape.tensor_ranks * shape.stages) != 0) continue;
      SCOPED_TRACE(concat(shape.tensor_ranks, " tensor ranks, ", shape.stages, " stages"));
      test(shape);
    }
  }
  // Each parameter in pieces that begin and end within its rows.
  static std::vector<Piece> pieces_of(const ParameterTable& table) {
    constexpr std::int64_t kElements = 4001;
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < table.size(); ++i) {
      const std::int64_t numel = table[i].shape.numel();
      for (std::int64_t begin = 0; begin < numel; begin += kElements)
        pieces.push_back({i, begin, std::min(begin + kElements, numel)});
    }
    return pieces;
  }
  // The weights, m and v, as rank 0 collects them for a checkpoint, one parameter after the other.
  static std::vector<std::vector<float>> collected(SmallRun& run, const ParameterTable& table) {
    std::vector<std::vector<float>> all(3);
    run.trainer.gather_weights();
    PieceStream stream(ranks(), *run.backend, placed_in_parts(table, run.grid),
                       checkpoint_arenas(run.grid, run.model, run.trainer.optimizer()));
    stream.run([&] {
      for (std::size_t arena = 0; arena < all.size(); ++arena) {
        for (const Piece& piece : pieces_of(table)) {
          std::vector<float> elements(static_cast<std::size_t>(piece.size()));
          stream.values(arena)(piece.parameter, piece.begin, elements);
          all[arena].insert(all[arena].end(), elements.begin(), elements.end());
        }
      }
    });
    return all;
  }
};

class GridTraining : public GridTrainingWithZero1, public testing::WithParamInterface<const char*> {};

TEST_P(GridTraining, is_that_of_one_process) {
  static const OnOneProcess one = train_on_one_process();
  for_each_grid([](const GridShape& shape) {
    SmallRun many = grid_run(settings_of(shape), GetParam());
    for (const StepReport& expected : one.steps) {
      const StepReport report = many.trainer.step();
      EXPECT_NEAR(expected.loss, std::log(kVocabulary), 0.5);  // of a model that knows nothing
      EXPECT_NEAR(report.loss, expected.loss, kDividedTrainingLimit * expected.loss) << report.step;
      EXPECT_NEAR(report.grad_norm, expected.grad_norm, kDividedTrainingLimit * expected.grad_norm)
          << report.step;
      EXPECT_EQ(report.rank_seconds.size(), static_cast<std::size_t>(ranks().size()));
      if (shape.stages > 1 || std::string_view(GetParam()) != "flat") continue;
      const Parameters& part = many.model.parameters();
      EXPECT_EQ(report.communication.bytes_reduced,
                (part.grads().numel() + shared_end(part.table())) * std::int64_t{sizeof(float)});
    }
    const auto all = collected(many, one.table);
    if (!ranks().is_root()) return;
    for (std::size_t arena = 0; arena < all.size(); ++arena) {
      const std::vector<float>& whole = one.arenas[arena];
      ASSERT_EQ(all[arena].size(), whole.size());
      std::vector<float> difference = whole;
      for (std::size_t i = 0; i < whole.size(); ++i) difference[i] -= all[arena][i];
      EXPECT_LE(l2_norm(difference), kDividedTrainingLimit * l2_norm(whole)) << "arena " << arena;
    }
  });
}

TEST_F(GridTrainingWithZero1, has_one_norm_and_the_same_shared_weights_on_all_ranks) {
  for_each_grid([](const GridShape& shape) {
    SmallRun run = grid_run(settings_of(shape), "zero1");
    for (int step = 0; step < kGridSteps; ++step) {
      const double norm = run.trainer.step().grad_norm;
      for (const double other : gather(ranks(), norm)) EXPECT_EQ(norm, other);
    }
    const Parameters& parameters = run.model.parameters();
    const std::vector<float> shared =
        run.elements(parameters.weights().slice(0, {shared_end(parameters.table())}));
    std::vector<float> roots = shared;
    run.grid.tensor().group().broadcast(std::as_writable_bytes(std::span(roots)), 0);
    EXPECT_EQ(shared == roots, true);
  });
}

TEST_F(GridTrainingWithZero1, loads_its_part_of_what_was_collected) {
  for_each_grid([](const GridShape& shape) {
    SmallRun run = grid_run(settings_of(shape), "zero1");
    run.trainer.step();
    const ParameterTable whole = gpt2_parameter_table(run.model.config());
    auto all = collected(run, whole);
    for (std::vector<float>& elements : all) {
      elements.resize(static_cast<std::size_t>(whole.numel()));
      ranks().broadcast(std::as_writable_bytes(std::span(elements)), 0);
    }
    const auto values = [&](std::size_t arena) -> ParameterValues {
      return [&, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
        for (std::size_t before = 0; before < i; ++before) begin += whole[before].shape.numel();
        std::copy_n(all[arena].begin() + begin, out.size(), out.begin());
      };
    };
    const Parameters& parameters = run.model.parameters();
    const Moments& moments = run.trainer.optimizer().moments();
    const std::vector<float> weights = run.weights(), m = run.elements(moments.m),
                             v = run.elements(moments.v);
    for (const Tensor& arena : {parameters.weights(), moments.m, moments.v}) run.backend->fill(arena, 7);
    take_part(ranks(), *run.backend, whole, values(0), parameters.table(), parameters.weights());
    load_moments(*run.backend, run.grid, run.model, run.trainer.optimizer(), {values(1), values(2)});
    EXPECT_EQ(run.weights() == weights, true);
    EXPECT_EQ(run.elements(moments.m) == m, true);
    EXPECT_EQ(run.elements(moments.v) == v, true);
  });
}

TEST_F(GridTrainingWithZero1, takes_the_memory_of_its_plan) {
  for_each_grid([](const GridShape& shape) {
    const SmallSettings settings = settings_of(shape);
    SmallRun run = grid_run(settings, "zero1");
    run.backend->forget_memory_peak();
    for (int step = 0; step < 2; ++step) run.trainer.step();
    const auto plan = static_cast<double>(
        plan_memory({SmallRun::config(settings), SmallRun::trainer_config(settings), kT,
                     run.grid.data().size(), *run.sync, DType::f32, shape.tensor_ranks, shape.stages})
            .total());
    const std::vector<std::size_t> peaks = gather(ranks(), run.backend->memory_stats().peak_bytes_in_use);
    EXPECT_NEAR(static_cast<double>(std::ranges::max(peaks)), plan, 0.05 * plan);
  });
}

// A stage that has wte for the embedding alone multiplies with it no more than with wpe.
TEST_F(GridTrainingWithZero1, has_the_products_of_a_step_as_its_bound) {
  for_each_grid([](const GridShape& shape) {
    const SmallSettings settings = settings_of(shape);
    SmallRun run = grid_run(settings, "zero1");
    struct Products {
      std::int64_t calls = 0;
      double flops = 0;
    };
    const auto products_in = [&](const auto& work) {
      Profiler profiler(*run.backend);
      work();
      Products products;
      for (const Profiler::Entry& op : profiler.entries()) {
        if (op.name.find("linear") == std::string::npos) continue;
        products.calls += op.calls;
        products.flops += op.work.flops;
      }
      return products;
    };
    const Products step = products_in([&] { run.trainer.step(); });
    const GemmBound bound(*run.backend, run.model, run.trainer.optimizer(),
                          {settings.batch_size / run.grid.data().size() * kT, settings.accumulation});
    const Products bounds = products_in([&] { bound.products(); });
    EXPECT_EQ(bounds.calls, step.calls);
    EXPECT_NEAR(bounds.flops, step.flops, 0.03 * step.flops);  // a step has biases and activations too
  });
}

TEST_F(GridTrainingWithZero1, finds_the_tensor_that_is_not_finite_on_one_rank) {
  for_each_grid([](const GridShape& shape) {
    // What the first stage has reaches all later ones, in an earlier op of theirs. All of its data ranks have
    // it, because zero1 copies the weights of a slice's owner to the others.
    for (const std::string name : {"h.0.mlp.c_fc.bias", "h.2.mlp.c_fc.bias"}) {
      SmallRun run = grid_run(settings_of(shape), "zero1");
      const bool has_it =
          name.starts_with("h.0") ? run.grid.model().rank() == 0 : ranks().rank() == ranks().size() - 1;
      if (has_it) run.backend->fill(run.model.parameters().var(name).value(), std::nan(""));
      const StepReport report = run.trainer.step();
      EXPECT_TRUE(report.skipped());
      const std::string found = run.trainer.first_non_finite(report);
      EXPECT_NE(found.find(name), std::string::npos) << found;
    }
  });
}

// Rank r has r/2 ms of products and r ms of AdamW, and a peak of r MiB.
TEST(BenchOfRanks, has_the_bound_and_the_memory_of_the_rank_that_has_most) {
  const int rank = ranks().rank();
  BenchReport report;
  for (const int i : {1, 2, 3}) {
    report.products_ms.add(i * rank / 4.0);
    report.adamw_ms.add(i * rank / 2.0);
  }
  report.peak_bytes = static_cast<std::size_t>(rank) << 20;
  take_most_of_ranks(ranks(), report);
  const int last = ranks().size() - 1;
  EXPECT_EQ(report.products_ms.median(), last / 2.0);
  EXPECT_EQ(report.adamw_ms.median(), last);
  EXPECT_EQ(report.peak_bytes, static_cast<std::size_t>(last) << 20);
  ASSERT_EQ(report.rank_peak_bytes.size(), static_cast<std::size_t>(ranks().size()));
  for (int of = 0; of <= last; ++of)
    EXPECT_EQ(report.rank_peak_bytes[static_cast<std::size_t>(of)], std::size_t(of) << 20);
}

std::string name_of_grid_sync(const testing::TestParamInfo<const char*>& test) {
  std::string name = test.param;
  std::ranges::replace(name, '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(By, GridTraining, testing::Values("flat", "zero1", "zero1-overlapped"),
                         name_of_grid_sync);

// Neighbours are tensor ranks, then data ranks, then stages.
TEST(Grids, have_neighbouring_tensor_ranks) {
  const auto backend = make_cpu_backend(1);
  const auto world = make_mpi_communicator(ranks(), *backend, CommAlgorithm::ring);
  const auto expect_place = [](const Communicator& part, int rank, int size) {
    EXPECT_EQ(part.rank(), rank);
    EXPECT_EQ(part.size(), size);
  };
  const int n = ranks().size(), rank = ranks().rank();
  for (const auto& [tensor, stages] : std::initializer_list<std::pair<int, int>>{
           {1, 1}, {2, 1}, {3, 1}, {4, 1}, {1, 2}, {1, 3}, {2, 2}, {1, 4}}) {
    SCOPED_TRACE(concat(tensor, " tensor ranks, ", stages, " stages"));
    if (n % (tensor * stages) != 0) {
      EXPECT_THROW(Grid(*world, tensor, stages), AgreedUserError);
      continue;
    }
    const Grid grid(*world, tensor, stages);
    const int data = n / tensor / stages, tensor_rank = rank % tensor, stage = rank / tensor / data;
    expect_place(grid.tensor(), tensor_rank, tensor);
    expect_place(grid.data(), rank / tensor % data, data);
    expect_place(grid.pipeline(), stage, stages);
    expect_place(grid.model(), stage * tensor + tensor_rank, tensor * stages);
    expect_place(grid.world(), rank, n);
  }
}

}  // namespace
}  // namespace stagegpt::test
