// With zero1 in bf16 the ranks exchange the weights that ops read. Everything equals a run whose ranks
// exchange all weights in f32 after each step, bit for bit.
#include <gtest/gtest.h>

#include <limits>

#include "common/checkpoint/hugging_face_model.h"
#include "common/comm/agreement.h"
#include "common/logging/step_trace.h"
#include "common/train/compare_weights.h"
#include "common/train/training_run.h"
#include "stage1_mpi/gradient_syncs.h"
#include "stage1_mpi/sync/zero1_overlapped_sync.h"
#include "stage3_mpi_cuda/host_staged_communicator.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/program.h"
#include "tests/support/small_training.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

constexpr int kSteps = 3;
constexpr std::int64_t kBatch = 12;  // divisible by 1, 2, 3 and 4 ranks
// The smallest model with several buckets of kSmallBucket bytes.
const Gpt2Config kTiny = {
    .vocab_size = kSmallVocabulary, .block_size = 4, .n_layer = 1, .n_head = 1, .n_embd = 16};
constexpr std::int64_t kSmallBucket = 4 << 10;

// A synchronisation whose ranks exchange all weights in f32, and round them.
class InF32 final : public GradientSync {
 public:
  InF32(Communicator& communicator, Backend& backend, std::unique_ptr<GradientSync> sync)
      : communicator_(communicator), backend_(backend), sync_(std::move(sync)) {}

  ArenaParts owned(std::int64_t size) const override { return sync_->owned(size); }
  void ready(Parameters& parameters, int i) override { sync_->ready(parameters, i); }
  void finish(Parameters& parameters) override { sync_->finish(parameters); }
  void sum_squared_norms(const Tensor& sum, const Tensor& parts) override {
    sync_->sum_squared_norms(sum, parts);
  }
  // The sum of what each rank owns, and of -0 of the others.
  void share_weights(Parameters& parameters) override {
    const Tensor& weights = parameters.weights();
    std::int64_t end = 0;
    for (const ArenaRange& part : owned(weights.numel())) {
      clear(weights, end, part.begin);
      end = part.end;
    }
    clear(weights, end, weights.numel());
    communicator_.all_reduce(weights)->wait();
    parameters.update_shadow();
  }
  CommunicationReport take_report() override { return sync_->take_report(); }

 private:
  void clear(const Tensor& weights, std::int64_t begin, std::int64_t end) {
    if (begin < end) backend_.fill(weights.slice(begin, {end - begin}), -0.0);
  }

  Communicator& communicator_;
  Backend& backend_;
  std::unique_ptr<GradientSync> sync_;
};

struct Case {
  std::string name;
  CommAlgorithm algorithm;
  std::int64_t bucket_bytes;  // 0: zero1
};

std::ostream& operator<<(std::ostream& out, const Case& it) { return out << it.name; }

class Rank {
 public:
  Rank(const Case& it, bool in_f32)
      : backend(make_backend()),
        communicator(gpu::make_host_staged_communicator(ranks(), dynamic_cast<gpu::CudaBackend&>(*backend),
                                                        it.algorithm)),
        sync(make_sync(it)),
        model(*backend, kTiny, DType::f32, ranks().size(), Purpose::training, DType::bf16) {
    if (in_f32) sync = std::make_unique<InF32>(*communicator, *backend, std::move(sync));
    model.parameters().initialize(1);
    model.parameters().update_shadow();
  }

  Parameters& parameters() { return model.parameters(); }
  std::vector<std::byte> bytes(const Tensor& tensor) const {
    std::vector<std::byte> bytes(tensor.bytes());
    backend->copy_to_host(bytes, tensor);
    return bytes;
  }

  const std::unique_ptr<Backend> backend;
  const std::unique_ptr<Communicator> communicator;
  std::unique_ptr<GradientSync> sync;
  Gpt2 model;

 private:
  static std::unique_ptr<Backend> make_backend() {
    gpu::open_device(0);
    return gpu::make_cuda_backend({});
  }
  std::unique_ptr<GradientSync> make_sync(const Case& it) {
    if (it.bucket_bytes == 0) return make_gradient_sync("zero1", *communicator, *backend);
    return std::make_unique<Zero1OverlappedSync>(*communicator, *backend, it.bucket_bytes);
  }
};

class Bf16Weights : public testing::TestWithParam<Case> {
 protected:
  Rank in_bf16_{GetParam(), false}, in_f32_{GetParam(), true};
};

TEST_P(Bf16Weights, of_all_ranks_are_those_of_an_exchange_in_f32) {
  const DataLoader data(random_tokens(300), kTiny.block_size, 1);
  Trainer got(*in_bf16_.backend, *in_bf16_.communicator, *in_bf16_.sync, in_bf16_.model, data,
              small_config(kBatch, 1)),
      expected(*in_f32_.backend, *in_f32_.communicator, *in_f32_.sync, in_f32_.model, data,
               small_config(kBatch, 1));
  Parameters &ours = in_bf16_.parameters(), &theirs = in_f32_.parameters();
  const ParameterTable& table = ours.table();
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    const StepReport report = got.step(), wanted = expected.step();
    EXPECT_EQ(report.loss, wanted.loss);
    EXPECT_EQ(report.grad_norm, wanted.grad_norm);
    for (std::size_t i = 0; i < table.size(); ++i) {
      EXPECT_EQ(in_bf16_.bytes(ours.var(i).value()) == in_f32_.bytes(theirs.var(i).value()), true)
          << table[i].name;
    }
  }
  const auto all = in_f32_.bytes(theirs.weights());
  EXPECT_EQ(in_bf16_.bytes(ours.weights()) == all, ranks().size() == 1) << "f32 has been sent";
  got.gather_weights();
  EXPECT_EQ(in_bf16_.bytes(ours.weights()) == all, true);
}

// What a run writes from its first step, or from a checkpoint of another run.
std::map<std::string, std::string> files_of_run(Rank& rank, const std::filesystem::path& path,
                                                const std::filesystem::path& checkpoint = {}) {
  Corpus corpus;
  corpus.tokenizer = char_tokenizer("abc");
  corpus.train = TokenSequence(random_tokens(300));
  TrainingRunConfig config;
  config.trainer = small_config(kBatch, 1);
  config.trainer.schedule.steps = config.last_step = 4;
  config.checkpoint_every = 2;
  config.trace_steps = 4;
  config.peak = Peak{1e9, "made up"};
  TrainingRun run(*rank.backend, *rank.communicator, *rank.sync, rank.model, corpus, config);
  if (!checkpoint.empty()) {
    on_root(ranks(), [&] {
      load_weights(*rank.backend, rank.model.parameters(), read_hugging_face(checkpoint, "--resume").values);
    });
    broadcast_weights(*rank.communicator, *rank.backend, rank.parameters());
    rank.parameters().update_shadow();
    run.resume(checkpoint);
  }
  run.prepare();
  std::optional<RunDirectory> directory;
  if (ranks().is_root()) directory = RunDirectory::create(path);
  testing::internal::CaptureStderr();
  run.run(directory ? &*directory : nullptr);
  testing::internal::GetCapturedStderr();
  std::map<std::string, std::string> files;
  if (!ranks().is_root()) return files;
  for (const char* step : {"00000002", "00000004"}) {
    for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
      const std::string file = concat("checkpoints/step_", step, "/", name);
      if (exists(path / file)) files[file] = read_bytes(path / file);
    }
  }
  for (const auto& [step, trace] : traces_in(path / "traces")) files[trace.filename()] = read_bytes(trace);
  return files;
}

TEST_P(Bf16Weights, are_gathered_for_checkpoints_and_traces) {
  const ScratchDirectory scratch;
  const std::filesystem::path of_root = text_from_root(ranks(), [&] { return scratch.path().string(); });
  const std::filesystem::path path = of_root / "bf16";
  const auto got = files_of_run(in_bf16_, path), expected = files_of_run(in_f32_, of_root / "f32");
  EXPECT_EQ(got.size(), ranks().is_root() ? 8u : 0u);  // two checkpoints, four traces
  for (const auto& [name, text] : expected) EXPECT_EQ(got.at(name) == text, true) << name;

  Rank again(GetParam(), /*in_f32=*/false);
  const auto resumed = files_of_run(again, of_root / "resumed", path / "checkpoints" / checkpoint_name(2));
  EXPECT_EQ(resumed.size(), ranks().is_root() ? 4u : 0u);  // a checkpoint, traces of steps 3 and 4
  for (const auto& [name, text] : resumed) EXPECT_EQ(got.at(name) == text, true) << name << ", resumed";
}

// A sum with 0 in place of -0 would lose the sign of a zero.
TEST_P(Bf16Weights, of_layernorms_keep_all_bits) {
  Parameters& parameters = in_bf16_.parameters();
  const Tensor& bias = parameters.var("h.0.ln_2.bias").value();
  in_bf16_.backend->fill(bias, -0.0);
  const Tensor& weight = parameters.var("h.0.ln_2.weight").value();
  in_bf16_.backend->fill(weight, std::numeric_limits<float>::denorm_min());
  const auto zeros = in_bf16_.bytes(bias), least = in_bf16_.bytes(weight);
  in_bf16_.sync->share_weights(parameters);
  EXPECT_EQ(in_bf16_.bytes(bias) == zeros, true);
  EXPECT_EQ(in_bf16_.bytes(weight) == least, true);
}

INSTANTIATE_TEST_SUITE_P(By, Bf16Weights,
                         testing::Values(Case{"zero1", CommAlgorithm::ring, 0},
                                         Case{"zero1_by_mpi", CommAlgorithm::mpi, 0},
                                         Case{"zero1_overlapped", CommAlgorithm::ring, kSmallBucket}),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace stagegpt::test
