#include "common/backend/planning_backend.h"

#include <cstdint>
#include <cstring>

namespace stagegpt {
namespace {

// Addresses beyond those that any process has (x86-64: 57 bits, of which programs get the lower half;
// AArch64: 52). None is given out twice. Nothing is asked of the system, so that no limit on a process
// counts.
class ImaginedAddresses final : public MemorySource {
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
  PlanningBackend() : Backend(std::make_unique<ImaginedAddresses>()) {}
  void synchronize() override {}

 private:
  void do_fill(const Tensor&, double) override {}
  void do_copy(const Tensor&, const Tensor&) override {}
  void do_copy_from_host(void*, const void*, std::size_t) override {}
  void do_copy_to_host(void* out, const void*, std::size_t bytes) override { std::memset(out, 0, bytes); }
  void do_add(const Tensor&, const Tensor&, const Tensor&) override {}
  void do_cast(const Tensor&, const Tensor&) override {}
  void do_embedding_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void do_embedding_backward(const Grad&, const Grad&, const Tensor&, const Tensor&) override {}
  void do_linear_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&) override {}
  void do_linear_activation_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                    Activation) override {}
  void do_linear_backward(const Grad&, const Grad&, const Grad&, const Tensor&, const Tensor&,
                          const Tensor&) override {}
  void do_activation_forward(const Tensor&, const Tensor&, Activation) override {}
  void do_activation_backward(const Grad&, const Tensor&, const Tensor&, Activation) override {}
  void do_layernorm_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                            const Tensor&, double) override {}
  void do_residual_layernorm_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                     const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                     double) override {}
  void do_layernorm_backward(const Grad&, const Grad&, const Grad&, const Tensor&, const Tensor&,
                             const Tensor&, const Tensor&, const Tensor&) override {}
  void do_attention_forward(const Tensor&, const Tensor&, const Tensor&, int, const Dropout&) override {}
  void do_attention_backward(const Grad&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int,
                             const Dropout&) override {}
  void do_cached_attention_forward(const Tensor&, const Tensor&, const Tensor&, int, std::int64_t) override {}
  void do_dropout_forward(const Tensor&, const Tensor&, const Dropout&) override {}
  void do_dropout_backward(const Grad&, const Tensor&, const Dropout&) override {}
  void do_cross_entropy_forward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                std::int64_t) override {}
  void do_cross_entropy_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 std::int64_t) override {}
  void do_count_correct(const Tensor&, const Tensor&, const Tensor&, std::int64_t) override {}
  void do_squared_norm(const Tensor&, const Tensor&) override {}
  void do_adamw(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                std::span<const DecayRange>, const AdamWStep&) override {}
};

}  // namespace

std::unique_ptr<Backend> make_planning_backend() { return std::make_unique<PlanningBackend>(); }

}  // namespace stagegpt
