// Staging on late streams: memory that is reused too early gives wrong results.
#include <gtest/gtest.h>

#include <vector>

#include "stage2_cuda/cuda_backend.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/emulation/device_memory.h"
#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/staging.h"

namespace stagegpt::gpu {
namespace {

class LateStaging : public testing::Test {
 protected:
  LateStaging() { emulation::set_stream_time(emulation::StreamTime::late); }
  ~LateStaging() override { emulation::set_stream_time(emulation::StreamTime::at_once); }
};

// There are more pieces than slots, so the first slots are used twice.
TEST_F(LateStaging, WaitsForASlotBeforeItIsUsedAgain) {
  constexpr std::size_t kSlot = std::size_t{4} << 20, kBytes = 6 * kSlot;
  std::vector<std::uint32_t> words(kBytes / 4), back(words.size());
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u);
  void* const device = allocate(kBytes);
  {
    const Stream stream;
    Staging staging(stream);
    staging.copy_to_device(device, words.data(), kBytes);
    const Staging::CopyToHost whole{back.data(), device, kBytes};
    staging.copy_to_host({&whole, 1});
  }
  EXPECT_TRUE(back == words);
  deallocate(device);
}

// The batches of many micro-steps: on a GPU, the host could not give work ahead if it waited for them.
TEST_F(LateStaging, SmallCopiesShareASlotWithoutAWait) {
  constexpr std::uint32_t kCopies = 100;
  void* const device = allocate(kCopies * 4);
  std::vector<std::uint32_t> back(kCopies);
  {
    const Stream stream;
    Staging staging(stream);
    const std::int64_t before = device_counts.waits;
    for (std::uint32_t i = 0; i < kCopies; ++i)
      staging.copy_to_device(static_cast<std::byte*>(device) + 4 * i, &i, 4);
    EXPECT_EQ(device_counts.waits, before);
    std::vector<Staging::CopyToHost> copies;
    for (std::uint32_t i = 0; i < kCopies; ++i)
      copies.push_back({&back[i], static_cast<std::byte*>(device) + 4 * i, 4});
    staging.copy_to_host(copies);
    EXPECT_EQ(device_counts.waits, before + 1);
  }
  for (std::uint32_t i = 0; i < kCopies; ++i) EXPECT_EQ(back[i], i);
  deallocate(device);
}

// With late streams, an op that nobody has waited for has not been done.
TEST_F(LateStaging, ABackendIsWaitedFor) {
  const auto backend = make_cuda_backend({});
  const Tensor x = backend->zeros(DType::f32, {1});
  const auto* view = static_cast<const float*>(emulation::device_memory().view(x.raw()));
  backend->synchronize();
  EXPECT_EQ(*view, 0);
  backend->fill(x, 3);
  EXPECT_EQ(*view, 0);
  backend->synchronize();
  EXPECT_EQ(*view, 3);
}

}  // namespace
}  // namespace stagegpt::gpu
