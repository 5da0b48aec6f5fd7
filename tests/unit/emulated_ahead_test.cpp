// Copies ahead of their use, on streams that do their work as late or as early as they may.
#include <gtest/gtest.h>

#include <array>

#include "stage2_cuda/copy_ahead.h"
#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/emulation/settings.h"
#include "tests/support/small_training.h"

namespace stagegpt::test {
namespace {

using gpu::emulation::StreamTime;

class Ahead : public testing::TestWithParam<StreamTime> {
 protected:
  void SetUp() override { gpu::emulation::set_stream_time(GetParam()); }
  void TearDown() override { gpu::emulation::set_stream_time(StreamTime::at_once); }
};

// What is sent may not replace what has not been received, nor be received too early.
TEST_P(Ahead, WhatIsSentIsReceivedInItsTurn) {
  const auto backend = gpu::make_cuda_backend({});
  const Tensor all = backend->zeros(DType::i32, {6});
  const auto send = [&](std::int32_t first) {
    const std::array numbers = {first, first + 1};
    backend->send_ahead(std::as_bytes(std::span(numbers)));
  };
  send(10);
  for (const std::int64_t i : {0, 1, 2}) {
    backend->receive(all.slice(2 * i, {2}));
    if (i < 2) send(20 + 10 * static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(to_host<std::int32_t>(*backend, all), (std::vector<std::int32_t>{10, 11, 20, 21, 30, 31}));
}

// The buffer has memory that an op before it still reads.
TEST_P(Ahead, TheBufferIsWrittenAfterTheOpsThatUsedItsMemory) {
  const auto backend = gpu::make_cuda_backend({});
  gpu::CopyAhead ahead(backend->stream());
  const Tensor out = backend->allocate(DType::i32, {2}), in = backend->allocate(DType::i32, {2});
  backend->fill(in, 7);
  backend->copy(out, in);
  constexpr std::array kNumbers = {1, 2};
  ahead.send(in, std::as_bytes(std::span(kNumbers)));
  ahead.synchronize();
  EXPECT_EQ(to_host<std::int32_t>(*backend, in), (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(to_host<std::int32_t>(*backend, out), (std::vector<std::int32_t>{7, 7}));
}

TEST_P(Ahead, TrainsWithTheSameBits) {
  const auto weights = [](StreamTime time, bool graph) {
    gpu::emulation::set_stream_time(time);
    Gpt2Config model = SmallTraining::model_config(/*dropout=*/0.2);
    model.n_layer = 1;
    model.n_head = 2;
    model.n_embd = 16;
    SmallTraining run(gpu::make_cuda_backend({.graph = graph}), small_config(2, 2), random_tokens(1000),
                      model);
    for (int step = 0; step < 3; ++step) run.trainer.step();
    return run.weights();
  };
  const std::vector<float> expected = weights(StreamTime::at_once, false);
  for (const bool graph : {false, true}) EXPECT_EQ(weights(GetParam(), graph) == expected, true) << graph;
}

INSTANTIATE_TEST_SUITE_P(Emulated, Ahead, testing::Values(StreamTime::late, StreamTime::ahead),
                         [](const auto& time) { return time.param == StreamTime::late ? "late" : "ahead"; });

}  // namespace
}  // namespace stagegpt::test
