// The emulated device's memory and the rest of its runtime: which accesses are valid, and which are reported.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "common/base/error.h"
#include "common/tensor/caching_allocator.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/device_memory_source.h"
#include "tests/emulation/emulated.h"
#include "tests/support/refusal.h"

namespace {

bool memory_is_refused = false;

}  // namespace

// In place of the C library's.
extern "C" int mprotect(void* begin, std::size_t bytes, int protection) noexcept {
  if (!memory_is_refused) return static_cast<int>(syscall(SYS_mprotect, begin, bytes, protection));
  errno = ENOMEM;
  return -1;
}

namespace stagegpt::test {
namespace {

using namespace gpu;

TEST(EmulatedMemory, blocks_are_aligned_distinct_and_hold_no_numbers) {
  std::vector<void*> blocks;
  for (const std::size_t size : {1, 4, 256, 257, 4096, 5000, 1 << 20}) {
    void* block = blocks.emplace_back(allocate(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 256, 0);
    std::vector<unsigned char> bytes(size);
    copy_to_host(bytes.data(), block, size, nullptr);
    EXPECT_EQ(bytes, std::vector<unsigned char>(size, 0xFF));
    copy_to_device(block, std::vector<unsigned char>(size, 1).data(), size, nullptr);
  }
  for (void* block : blocks) deallocate(block);
  // Memory that is allocated again is filled with NaN again.
  DeviceArray<float> again(1);
  void* block = allocate(5000);
  float value = 0;
  copy_to_host(&value, block, sizeof(value), nullptr);
  EXPECT_TRUE(std::isnan(value));
  deallocate(block);
}

TEST(EmulatedMemory, freed_memory_is_free_again) {
  const MemoryInfo before = memory_info();
  std::vector<void*> blocks(100);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = allocate(1 + 997 * ((i * 37) % 100));
    EXPECT_LT(memory_info().free, before.free);
    for (std::size_t i = 0; i < blocks.size(); ++i) deallocate(blocks[(i * 61) % 100]);
  }
  EXPECT_EQ(memory_info().free, before.free);
  EXPECT_EQ(memory_info().total, before.total);
}

TEST(EmulatedMemory, allocations_are_counted) {
  const std::int64_t before = device_counts.work().allocations;
  for (int i = 0; i < 3; ++i) deallocate(allocate(16));
  EXPECT_EQ(device_counts.work().allocations - before, 3);
}

TEST(EmulatedMemory, copies_and_zeros) {
  DeviceArray<int> x({1, 2, 3, 4}), y(4);
  copy_on_device(y.data() + 1, x.data(), 2 * sizeof(int), nullptr);
  EXPECT_EQ(y.values(), (std::vector<int>{0, 1, 2, 0}));
  copy_on_device(x.data() + 1, x.data(), 3 * sizeof(int), nullptr);
  EXPECT_EQ(x.values(), (std::vector<int>{1, 1, 2, 3}));
  set_zero(x.data() + 2, sizeof(int), nullptr);
  EXPECT_EQ(x.values(), (std::vector<int>{1, 1, 0, 3}));
  copy_to_device(nullptr, nullptr, 0, nullptr);
}

TEST(EmulatedMemory, copies_keep_to_one_allocation) {
  DeviceArray<char> x(256), y(256);
  std::vector<char> host(1024);
  const auto too_far = [](const char* copy, int bytes, const void* begin, int rest) {
    return concat(copy, ": ", bytes, " bytes at ", begin, " exceed their allocation: it ends after ", rest,
                  " bytes");
  };
  EXPECT_EQ(failure([&] { copy_to_device(x.data() + 200, host.data(), 56, nullptr); }), "");
  EXPECT_EQ(failure([&] { copy_to_device(x.data() + 200, host.data(), 57, nullptr); }),
            too_far("copy_to_device", 57, x.data() + 200, 56));
  EXPECT_EQ(failure([&] { copy_to_host(host.data(), x.data() + 255, 2, nullptr); }),
            too_far("copy_to_host", 2, x.data() + 255, 1));
  EXPECT_EQ(failure([&] { set_zero(x.data(), 257, nullptr); }), too_far("set_zero", 257, x.data(), 256));
  EXPECT_EQ(failure([&] { copy_on_device(x.data(), y.data() + 1, 256, nullptr); }),
            too_far("copy_on_device", 256, y.data() + 1, 255));
}

TEST(EmulatedMemory, copies_know_device_from_host_memory) {
  DeviceArray<char> x(256), y(256);
  std::vector<char> host(256);
  const auto wrong = [](const char* copy, const void* begin, const char* why) {
    return concat(copy, ": ", begin, why);
  };
  const char* const absent = " is not in device memory";
  EXPECT_EQ(failure([&] { copy_to_device(host.data(), host.data(), 1, nullptr); }),
            wrong("copy_to_device", host.data(), absent));
  EXPECT_EQ(failure([&] { copy_on_device(x.data(), host.data(), 1, nullptr); }),
            wrong("copy_on_device", host.data(), absent));
  EXPECT_EQ(failure([&] { set_zero(host.data(), 1, nullptr); }), wrong("set_zero", host.data(), absent));
  const char* const present = " is in device memory, expected host memory";
  void* const view = host_view(x.data());
  EXPECT_EQ(failure([&] { copy_to_device(x.data(), y.data(), 1, nullptr); }),
            wrong("copy_to_device", y.data(), present));
  EXPECT_EQ(failure([&] { copy_to_host(x.data(), x.data(), 1, nullptr); }),
            wrong("copy_to_host", x.data(), present));
  EXPECT_EQ(failure([&] { copy_to_host(view, y.data(), 1, nullptr); }), wrong("copy_to_host", view, present));
  // A copy of 0 bytes does not check its pointers.
  EXPECT_NO_THROW(copy_to_host(x.data(), host.data(), 0, nullptr));
  EXPECT_NO_THROW(copy_on_device(host.data(), host.data(), 0, nullptr));
  EXPECT_NO_THROW(set_zero(host.data(), 0, nullptr));
}

TEST(EmulatedRuntime, is_one_device) {
  const DeviceInfo info = open_device(0);
  EXPECT_EQ(info.name, "emulated GPU");
  EXPECT_EQ(info.major, 8);
  EXPECT_EQ(info.minor, 0);
  EXPECT_GT(info.multiprocessors, 0);
  EXPECT_EQ(info.memory_bytes, memory_info().total);
  EXPECT_GT(info.memory_bytes, 0);
}

TEST(EmulatedRuntime, streams_events_and_pinned_memory) {
  StreamHandle stream = make_stream();
  EventHandle begin = make_event(EventKind::time), end = make_event(EventKind::time);
  EXPECT_THROW(milliseconds_between(begin, end), InternalError);
  record(begin, stream);
  auto* pinned = static_cast<float*>(allocate_pinned(5));
  pinned[0] = 3;
  DeviceArray<float> x(1);
  copy_to_device(x.data(), pinned, sizeof(float), stream);
  EXPECT_EQ(x.values()[0], 3);
  deallocate_pinned(pinned);
  record(end, stream);
  wait_for(end);
  synchronize(stream);
  EXPECT_GE(milliseconds_between(begin, end), 0);
  destroy_event(begin);
  destroy_event(end);
  destroy_stream(stream);
}

constexpr int kLineOfWriteAt = __LINE__ + 1;
__global__ void write_at(float* out, std::int64_t i) { out[i] = 1; }

__global__ void read_at(float* out, const float* in, std::int64_t i) { out[0] = in[i]; }

struct Holder {
  float* pointer;
};
__global__ void follow(Holder holder) { holder.pointer[0] = 1; }

// A frame larger than a fiber's stack.
__global__ void deep(float* out) {
  volatile float frame[emulation::kStackBytes / sizeof(float) + 1024];
  for (std::size_t i = sizeof(frame) / sizeof(float); i > 0; i -= 256) frame[i - 1] = 1;
  out[0] = frame[0];
}

class EmulatedMemoryDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(EmulatedMemoryDeathTest, host_code_follows_a_device_address) {
  DeviceArray<float> x(4);
  EXPECT_DEATH(std::printf("%f", x.data()[1]), "host code accessed device memory outside a copy");
  EXPECT_DEATH(x.data()[1] = 1, "host code accessed device memory outside a copy");
}

TEST_F(EmulatedMemoryDeathTest, a_kernel_goes_beyond_an_allocation) {
  DeviceArray<float> x(64), out(64);  // 256 bytes, directly before the guard page
  EXPECT_DEATH(launch<write_at>(1, 1, 0, nullptr, x.data(), 64),
               "kernel write_at, block \\(0,0,0\\), thread \\(0,0,0\\): reads or writes beyond an allocation "
               "of device memory: byte 256 .element 64, if of 4 bytes. of the array in argument 1 .*\n"
               "device_memory_test.cpp:" +
                   std::to_string(kLineOfWriteAt));
  EXPECT_DEATH(
      launch<read_at>(dim3(2, 3), 8, 0, nullptr, out.data(), x.data(), 65),
      "kernel read_at, block \\(.,.,0\\), thread \\(.,0,0\\): reads or writes beyond an allocation of "
      "device memory: byte 260 .element 65, if of 4 bytes. of the array in argument 2");
}

TEST_F(EmulatedMemoryDeathTest, a_kernel_follows_an_address_that_was_not_an_argument) {
  DeviceArray<float> x(4);
  EXPECT_DEATH(launch<follow>(1, 1, 0, nullptr, Holder{x.data()}),
               "kernel follow, .*dereferenced a device address that is not an argument");
}

TEST_F(EmulatedMemoryDeathTest, a_kernel_follows_a_null_pointer) {
  const DeviceArray<float> x(4);  // opens the device, which installs the signal handler
  EXPECT_DEATH(launch<write_at>(1, 1, 0, nullptr, nullptr, 1),
               "kernel write_at, block \\(0,0,0\\), thread \\(0,0,0\\): accessed an invalid address");
}

TEST_F(EmulatedMemoryDeathTest, a_kernel_overflows_its_stack) {
  DeviceArray<float> x(4);
  EXPECT_DEATH(launch<deep>(1, 1, 0, nullptr, x.data()), "kernel deep, .*overflows its stack");
}

TEST_F(EmulatedMemoryDeathTest, a_freed_block) {
  auto* x = static_cast<float*>(allocate(16));
  auto* view = static_cast<volatile float*>(host_view(x));
  view[0] = 1;
  deallocate(x);
  EXPECT_DEATH(view[0] = 1, "host code reads or writes beyond an allocation of device memory");
  DeviceArray<float> y(4);
  EXPECT_DEATH(deallocate(y.data() + 1), "was not allocated");
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(EmulatedMemoryDeathTest, address_sanitizer_sees_the_slack_of_a_block_and_freed_blocks) {
  CachingAllocator allocator(std::make_unique<DeviceMemorySource>());
  auto* x = static_cast<float*>(allocator.allocate(40));
  launch<write_at>(1, 1, 0, nullptr, x, 9);
  EXPECT_DEATH(launch<write_at>(1, 1, 0, nullptr, x, 10), "use-after-poison");
  allocator.deallocate(x, 40);
  EXPECT_DEATH(launch<write_at>(1, 1, 0, nullptr, x, 9), "use-after-poison");
}
#endif

void exhaust(std::size_t total) {
  setenv("STAGEGPT_EMULATOR_MEMORY", std::to_string(total).c_str(), 1);
  constexpr std::size_t kMost = std::numeric_limits<std::size_t>::max();  // rounded up, this overflows to 0
  const bool right =
      memory_info().total == total && allocate(total + 1) == nullptr && allocate(kMost) == nullptr;
  void* half = allocate(total / 2);
  const bool then_none =
      half != nullptr && allocate(total / 2 + 1) == nullptr && memory_info().free == total / 2;
  deallocate(half);
  CachingAllocator allocator(std::make_unique<DeviceMemorySource>());
  void* x = allocator.allocate(total / 2);
  allocator.deallocate(x, total / 2);
  const bool all = allocate(total) == nullptr;  // the allocator caches half of the memory
  x = allocator.allocate(total);                // the cached half is freed for this block
  allocator.deallocate(x, total);
  std::exit(right && then_none && all ? 0 : 1);
}

// Address ranges that were freed join their neighbours. Otherwise these blocks, each larger than all before,
// would need more addresses than the 1.1 GB that are reserved.
void free_in_turn(bool first_first) {
  setenv("STAGEGPT_EMULATOR_MEMORY", std::to_string(std::size_t{8} << 20).c_str(), 1);
  constexpr std::size_t kPage = 4096;
  for (std::size_t pages = first_first ? 600 : 860; pages < 1020; ++pages) {
    void *one = allocate(pages * kPage), *other = allocate(pages * kPage);
    if (one == nullptr || other == nullptr) std::exit(1);
    deallocate(first_first ? one : other);
    deallocate(first_first ? other : one);
  }
  std::exit(memory_info().free == memory_info().total ? 0 : 2);
}

TEST_F(EmulatedMemoryDeathTest, freed_addresses_join) {
  for (const bool first_first : {true, false}) {
    EXPECT_EXIT(free_in_turn(first_first), testing::ExitedWithCode(0), "") << first_first;
  }
}

TEST(EmulatedMemory, takes_the_first_addresses_that_are_enough) {
  void *a = allocate(5000), *b = allocate(16), *c = allocate(16);
  deallocate(a);
  deallocate(b);
  void *again = allocate(5000), *behind = allocate(16);
  EXPECT_EQ(again, a);
  EXPECT_EQ(behind, b);
  for (void* block : {again, behind, c}) deallocate(block);
}

// The system refuses memory more often than the addresses of the device would do for.
void be_refused_memory() {
  constexpr std::size_t kTotal = std::size_t{1} << 30;
  setenv("STAGEGPT_EMULATOR_MEMORY", std::to_string(kTotal).c_str(), 1);
  deallocate(allocate(1));
  bool none = true;
  memory_is_refused = true;
  for (int i = 0; i < 10; ++i) none = none && allocate(kTotal) == nullptr;
  memory_is_refused = false;
  std::exit(none && memory_info().free == kTotal && allocate(kTotal) != nullptr ? 0 : 1);
}

TEST_F(EmulatedMemoryDeathTest, is_as_much_as_before_when_the_system_has_refused_some) {
  EXPECT_EXIT(be_refused_memory(), testing::ExitedWithCode(0), "");
}

void open_with_memory(const char* value) {
  setenv("STAGEGPT_EMULATOR_MEMORY", value, 1);
  exit_with(refusal([] { open_device(0); }));
}

// Limits the address space to 1 GiB, like `ulimit -v`.
void open_with_few_addresses() {
  const rlimit few{.rlim_cur = std::size_t{1} << 30, .rlim_max = std::size_t{1} << 30};
  setrlimit(RLIMIT_AS, &few);
  exit_with(failure([] { open_device(0); }));
}

TEST_F(EmulatedMemoryDeathTest, needs_addresses) {
  EXPECT_EXIT(
      open_with_few_addresses(), testing::ExitedWithCode(2),
      "cannot reserve .* bytes of address space for the emulated GPU: .*; set STAGEGPT_EMULATOR_MEMORY to "
      "fewer bytes");
}

TEST_F(EmulatedMemoryDeathTest, there_is_as_much_as_the_environment_says) {
  EXPECT_EXIT(exhaust(1 << 20), testing::ExitedWithCode(0), "");
  for (const char* value : {"", "1G", "-1", "99999999999999999999"}) {
    EXPECT_EXIT(open_with_memory(value), testing::ExitedWithCode(2),
                "STAGEGPT_EMULATOR_MEMORY: expected a number");
  }
}

}  // namespace
}  // namespace stagegpt::test
