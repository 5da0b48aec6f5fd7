#include "common/backend/planning_backend.h"

#include <sys/mman.h>

#include <cstring>

namespace stagegpt {
namespace {

// Address space that may be neither read nor written, and is never backed by memory.
class AddressSpace final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    void* block = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return block == MAP_FAILED ? nullptr : block;
  }
  void deallocate(void* block, std::size_t bytes) noexcept override { munmap(block, bytes); }
  void* host_view(void*) const override { return nullptr; }
};

class PlanningBackend final : public Backend {
 public:
  PlanningBackend() : Backend(std::make_unique<AddressSpace>()) {}
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
