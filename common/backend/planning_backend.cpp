#include "common/backend/planning_backend.h"

#include <algorithm>
#include <cstdint>

namespace stagegpt {
namespace {

// Gives out addresses that no process can have (on x86-64 programs have the lower half of 57 bits; on
// AArch64, 52 bits), each of them once. The system is asked for nothing, so that no limit on a process
// applies.
class UnusableAddresses final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    if (bytes > kEnd - next_) return nullptr;
    void* block = reinterpret_cast<void*>(next_);  // NOLINT(performance-no-int-to-ptr)
    next_ += bytes;
    return block;
  }
  void deallocate(void*, std::size_t) noexcept override {}
  void* host_view(void*) const override { return nullptr; }

 private:
  static constexpr std::uintptr_t kBegin = std::uintptr_t{0xF0} << 48,
                                  kEnd = kBegin + (std::uintptr_t{1} << 52);
  std::uintptr_t next_ = kBegin;
};

class PlanningBackend final : public Backend {
 public:
  PlanningBackend() : Backend(std::make_unique<UnusableAddresses>(), /*kernels=*/nullptr) {}
  void synchronize() override {}

 private:
  void do_copy_from_host(void*, const void*, std::size_t) override {}
  void do_copy_to_host(std::span<const HostCopy> copies) override {
    for (const HostCopy& copy : copies) std::ranges::fill(copy.out, std::byte(0));
  }
};

}  // namespace

std::unique_ptr<Backend> make_planning_backend() { return std::make_unique<PlanningBackend>(); }

}  // namespace stagegpt
