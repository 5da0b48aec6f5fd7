// Late streams: work is delayed until the host waits for it.
#include <chrono>
#include <thread>

#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/event_timer.h"
#include "tests/emulation/emulated.h"

namespace stagegpt::test {
namespace {

using namespace gpu;

__global__ void set_to(float* out, float value) { out[0] = value; }

__global__ void some_wait(float* out) {
  if (threadIdx.x == 0) __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void sleep_for_20_ms(float* out) {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  out[0] = 1;
}

class LateStreams : public testing::Test {
 protected:
  LateStreams() { emulation::set_stream_time(emulation::StreamTime::late); }
  ~LateStreams() override { emulation::set_stream_time(emulation::StreamTime::at_once); }

  static void set(StreamHandle stream, const DeviceArray<float>& array, float value) {
    launch<set_to>({1, 1, 1}, {1, 1, 1}, 0, stream, array.data(), value);
  }
};

TEST_F(LateStreams, a_copy_reads_its_source_when_its_turn_comes) {
  const Stream stream;
  const DeviceArray<float> array(1);
  auto* pinned = static_cast<float*>(allocate_pinned(sizeof(float)));
  *pinned = 1;
  copy_to_device(array.data(), pinned, sizeof(float), stream);
  *pinned = 2;  // wrong: the copy has not run yet
  synchronize(stream);
  EXPECT_EQ(array.values()[0], 2);
  deallocate_pinned(pinned);
}

TEST_F(LateStreams, a_stream_has_done_its_work_when_it_is_destroyed) {
  const DeviceArray<float> array(1);
  {
    const Stream stream;
    set(stream, array, 3);
    EXPECT_EQ(array.values()[0], 0);
  }
  EXPECT_EQ(array.values()[0], 3);
}

// With `ahead`, a stream for which another one waits does what follows the event too.
TEST_F(LateStreams, a_stream_that_another_waits_for_may_run_ahead) {
  for (const auto time : {emulation::StreamTime::late, emulation::StreamTime::ahead}) {
    emulation::set_stream_time(time);
    const Stream first, second;
    const DeviceArray<float> before(1), after(1), last(1);
    const Event event;
    set(first, before, 1);
    record(event, first);
    set(first, after, 1);
    wait_for(second, event);
    set(second, last, 1);
    EXPECT_EQ(before.values()[0], 0);
    synchronize(second);
    EXPECT_EQ(before.values()[0], 1);
    EXPECT_EQ(last.values()[0], 1);
    EXPECT_EQ(after.values()[0], time == emulation::StreamTime::ahead ? 1 : 0);
  }
}

TEST_F(LateStreams, an_event_is_reached_with_the_work_before_it_alone) {
  const Stream stream;
  const DeviceArray<float> first(1), second(1);
  const Event event;
  set(stream, first, 1);
  record(event, stream);
  set(stream, second, 1);
  EXPECT_FALSE(is_done(event));
  wait_for(event);
  EXPECT_TRUE(is_done(event));
  EXPECT_EQ(first.values()[0], 1);
  EXPECT_EQ(second.values()[0], 0);
}

TEST_F(LateStreams, a_timer_takes_the_time_of_the_work_and_does_not_wait_before) {
  const Stream stream;
  const DeviceArray<float> array(1);
  EventTimer timer(stream);
  for (int turn = 0; turn < 2; ++turn) {
    set(stream, array, 0);
    synchronize(stream);
    timer.mark();
    timer.mark();
    launch<sleep_for_20_ms>({1, 1, 1}, {1, 1, 1}, 0, stream, array.data());
    timer.mark();
    EXPECT_EQ(array.values()[0], 0) << "a mark waited";
    const std::vector<double> seconds = timer.take_intervals();
    ASSERT_EQ(seconds.size(), 2u);
    EXPECT_EQ(array.values()[0], 1);
    EXPECT_GE(seconds[0], 0);
    EXPECT_GE(seconds[1], 0.02);
  }
  EXPECT_TRUE(timer.take_intervals().empty());
}

TEST_F(LateStreams, an_event_for_order_has_no_time) {
  const Stream stream;
  const Event order, time(EventKind::time);
  record(time, stream);
  record(order, stream);
  wait_for(order);
  EXPECT_GE(milliseconds_between(time, time), 0);
  EXPECT_THROW(milliseconds_between(time, order), InternalError);
}

TEST_F(LateStreams, who_asks_for_an_event_again_and_again_sees_it_reached) {
  const Stream stream;
  const DeviceArray<float> array(1);
  const Event event;
  EXPECT_TRUE(is_done(event)) << "it was never recorded";
  set(stream, array, 1);
  record(event, stream);
  EXPECT_FALSE(is_done(event));
  EXPECT_TRUE(is_done(event));
  EXPECT_EQ(array.values()[0], 1);
}

TEST_F(LateStreams, a_stream_does_not_wait_for_an_event_that_was_never_recorded) {
  const Stream stream;
  const DeviceArray<float> array(1);
  const Event event;
  gpu::wait_for(stream, event);
  set(stream, array, 5);
  synchronize(stream);
  EXPECT_EQ(array.values()[0], 5);
}

TEST_F(LateStreams, streams_that_do_not_wait_run_past_each_other) {
  const Stream writer, reader;
  const DeviceArray<float> array(1), copy(1);
  set(writer, array, 5);
  copy_on_device(copy.data(), array.data(), sizeof(float), reader);
  synchronize(reader);
  EXPECT_EQ(copy.values()[0], 0);
}

TEST_F(LateStreams, an_error_of_a_kernel_is_told_where_it_is_waited_for) {
  const Stream stream;
  const DeviceArray<float> array(2);
  launch<some_wait>({1, 1, 1}, {2, 1, 1}, 0, stream, array.data());
  expect_error({"some_wait"}, [&] { synchronize(stream); });
  EXPECT_NO_THROW(synchronize(stream)) << "told twice";
}

TEST_F(LateStreams, an_error_that_freeing_memory_meets_is_told_later) {
  const Stream stream, other;
  const DeviceArray<float> array(2), result(1);
  launch<some_wait>({1, 1, 1}, {2, 1, 1}, 0, stream, array.data());
  set(other, result, 4);
  { const DeviceArray<float> freed(1); }
  EXPECT_EQ(result.values()[0], 4) << "other streams have gone on";
  expect_error({"some_wait"}, [&] { synchronize(stream); });
  EXPECT_NO_THROW(synchronize(stream)) << "told twice";
}

TEST_F(LateStreams, memory_that_is_freed_has_been_used) {
  const Stream stream;
  const DeviceArray<float> result(1);
  {
    const DeviceArray<float> array(1);
    set(stream, array, 7);
    copy_on_device(result.data(), array.data(), sizeof(float), stream);
  }
  EXPECT_EQ(result.values()[0], 7);
}

}  // namespace
}  // namespace stagegpt::test
