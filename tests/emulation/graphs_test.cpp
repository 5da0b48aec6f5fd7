// Graphs: a stream's work that is recorded, and done when the graph is launched.
#include <vector>

#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/emulation/settings.h"
#include "tests/emulation/emulated.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

// A pointer inside a struct.
struct Factor {
  const float* value;
  float times;

  const float*& device_pointer() { return value; }
};

__global__ void multiply(float* out, Factor factor) { out[0] *= factor.times * factor.value[0]; }

class Graphs : public testing::TestWithParam<emulation::StreamTime> {
 protected:
  void SetUp() override { emulation::set_stream_time(GetParam()); }
  void TearDown() override { emulation::set_stream_time(emulation::StreamTime::at_once); }

  // out *= 2 · factor, then copy = out.
  GraphHandle captured(const Stream& stream) {
    Capture capture(stream);
    launch<multiply>({1, 1, 1}, {1, 1, 1}, 0, stream, out_.data(), Factor{factor_.data(), 2});
    copy_on_device(copy_.data(), out_.data(), sizeof(float), stream);
    return capture.finish();
  }
  static void set(const DeviceArray<float>& array, float value) {
    copy_to_device(array.data(), &value, sizeof(float), nullptr);
  }

  DeviceArray<float> out_{std::vector<float>{1}}, copy_{std::vector<float>{0}},
      factor_{std::vector<float>{1}};
};

TEST_P(Graphs, are_done_when_they_are_launched_with_what_memory_has_then) {
  const Stream stream;
  const Graph graph(captured(stream));
  synchronize(stream);
  EXPECT_EQ(out_.values()[0], 1) << "capturing does nothing";
  for (const float factor : {3.0F, 5.0F}) {
    set(factor_, factor);
    launch_graph(graph, stream);
    synchronize(stream);
  }
  EXPECT_EQ(out_.values()[0], 1 * (2 * 3) * (2 * 5));
  EXPECT_EQ(copy_.values()[0], 60);
}

TEST_P(Graphs, are_counted_when_they_are_launched) {
  const Stream stream;
  DeviceWork before = device_counts.work();
  const Graph graph(captured(stream));
  EXPECT_EQ((device_counts.work() - before).launches(), 0);
  before = device_counts.work();
  for (int i = 0; i < 3; ++i) launch_graph(graph, stream);
  const DeviceWork work = device_counts.work() - before;
  EXPECT_EQ(work.kernels, 3);
  EXPECT_EQ(work.copies, 3);
  EXPECT_EQ(work.graphs, 3);
  EXPECT_EQ(work.in_graphs, 3);
  synchronize(stream);
}

TEST_P(Graphs, are_captured_without_calls_that_a_GPU_refuses_then) {
  const Stream stream, other;
  const Event event;
  const Capture capture(stream);
  const auto expect_refused = [](const auto& call) {
    EXPECT_NE(failure(call).find("while a graph is captured"), std::string::npos);
  };
  expect_refused([&] { synchronize(stream); });
  expect_refused([&] { record(event, other); });
  expect_refused([&] { wait_for(event); });
  expect_refused([&] { wait_for(other, event); });
  expect_refused([&] { static_cast<void>(is_done(event)); });
  expect_refused([&] { begin_capture(other); });
}

TEST_P(Graphs, leave_nothing_behind_when_they_are_abandoned) {
  const Stream stream;
  const DeviceWork before = device_counts.work();
  {
    const Capture capture(stream);
    launch<multiply>({1, 1, 1}, {1, 1, 1}, 0, stream, out_.data(), Factor{factor_.data(), 2});
  }
  EXPECT_EQ((device_counts.work() - before).launches(), 0);
  synchronize(stream);
  EXPECT_EQ(out_.values()[0], 1);
}

INSTANTIATE_TEST_SUITE_P(Emulator, Graphs,
                         testing::Values(emulation::StreamTime::at_once, emulation::StreamTime::late),
                         [](const auto& time) {
                           return time.param == emulation::StreamTime::late ? "late" : "at_once";
                         });

}  // namespace
}  // namespace stagegpt::test
