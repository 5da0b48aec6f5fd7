// Copies through pinned memory in pieces, at sizes around one piece and above all pieces together.
#include "stage2_cuda/staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/random/philox.h"

namespace stagegpt::gpu {
namespace {

TEST(Staging, CopiesAllBytesThereAndBack) {
  constexpr std::size_t kSlot = std::size_t{4} << 20, kSlots = 4;
  std::vector<std::uint32_t> words((kSlots + 1) * kSlot / 4 + 3);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i * 2654435761u);
  const Stream stream;
  Staging staging(stream);
  void* const device = allocate(words.size() * 4);
  for (const std::size_t bytes : {kSlot - 4, kSlot, kSlot + 4, (kSlots + 1) * kSlot + 12}) {
    std::vector<std::uint32_t> back(bytes / 4);
    staging.copy_to_device(device, words.data(), bytes);
    // The second half first: each copy has its own place.
    const std::size_t half = bytes / 8 * 4;
    const Staging::CopyToHost copies[] = {
        {back.data() + half / 4, static_cast<std::byte*>(device) + half, bytes - half},
        {back.data(), device, half}};
    staging.copy_to_host(copies);
    EXPECT_TRUE(std::equal(back.begin(), back.end(), words.begin())) << bytes;
    std::ranges::reverse(words);  // different content for the next size
  }
  deallocate(device);
}

}  // namespace
}  // namespace stagegpt::gpu
