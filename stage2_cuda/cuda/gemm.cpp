// GEMM by cuBLASLt: c = scale · a · b + bias, with GELU or the gradient of a bias in its epilogue. For each
// shape, one algorithm is chosen and kept: that of the plans that the program was given, or else the first
// one of cuBLASLt's heuristic. Algorithms are not timed, so that a product has the same bits in every run,
// unless the program is asked to (GemmPlans::tune).
#include "stage2_cuda/gemm.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <map>
#include <stdexcept>
#include <utility>

#include "stage2_cuda/cuda/check.h"
#include "stage2_cuda/cuda/plan.h"
#include "stage2_cuda/device_counts.h"
#include "stage2_cuda/device_objects.h"
#include "stage2_cuda/plan_cache.h"

namespace stagegpt::gpu {
namespace {

constexpr int kTimed = 8;  // algorithms of each product, with GemmPlans::tune

class CublasLtGemm final : public Gemm {
 public:
  CublasLtGemm(Precision precision, std::shared_ptr<GemmPlans> given)
      : precision_(precision),
        given_(std::move(given)),
        handle_(make_handle()),
        workspace_(allocate(kWorkspaceBytes)) {
    check_cuda(workspace_ == nullptr ? cudaErrorMemoryAllocation : cudaSuccess,
               "allocating cuBLASLt's workspace of 32 MiB");
  }
  ~CublasLtGemm() override { deallocate(workspace_); }
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  void run(const Product& product, StreamHandle stream) override { multiply(product, stream); }
  void run(const ProductOf<Bf16, Bf16>& product, StreamHandle stream) override { multiply(product, stream); }
  void run(const ProductOf<Bf16, float>& product, StreamHandle stream) override { multiply(product, stream); }
  using Gemm::has_epilogue;
  // Rows of cuBLASLt's auxiliary matrix must be a multiple of eight elements.
  bool has_epilogue(const ProductOf<Bf16, Bf16>& product) override {
    return is_empty(product) || (product.ldc % 8 == 0 && plan_for(PlanKey(product, precision_), product));
  }
  bool has_epilogue(const ProductOf<Bf16, float>& product) override {
    return is_empty(product) || plan_for(PlanKey(product, precision_), product);
  }

 private:
  // All calls must use the same stream, because they share the workspace.
  template <class Factor, class Result>
  void multiply(const ProductOf<Factor, Result>& product, StreamHandle stream) {
    if (is_empty(product)) return;
    const PlanKey key(product, precision_);
    std::optional<Plan>& plan = plan_for(key, product);
    if (!plan) {
      throw std::runtime_error(concat("cuBLASLt has no algorithm for a GEMM of ", product.m, 'x', product.k,
                                      " and ", product.k, 'x', product.n, ", batch ", product.batch));
    }
    if (given_ && given_->tune && !plan->chosen) tune(*plan, key, product, stream);
    ++device_counts.products;
    launch(*plan, plan->algorithm, product, product.c, stream);
  }

  // `c` receives the product.
  template <class Factor, class Result>
  void launch(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
              const ProductOf<Factor, Result>& product, Result* c, StreamHandle stream) {
    set_pointers(plan.description, vector_of(product), product.pre);
    const float beta = product.accumulate ? 1 : 0;
    check_cublas(cublasLtMatmul(handle_.get(), plan.description.get(), &product.scale, product.b.data,
                                plan.first.get(), product.a.data, plan.second.get(), &beta, c,
                                plan.result.get(), c, plan.result.get(), &algorithm, workspace_,
                                kWorkspaceBytes, static_cast<cudaStream_t>(stream)),
                 "computing a GEMM");
  }

  template <class Factor, class Result>
  std::optional<Plan>& plan_for(const PlanKey& key, const ProductOf<Factor, Result>& product) {
    const auto known = plans_.find(key);
    if (known != plans_.end()) return known->second;
    auto plan = make_plan(handle_.get(), key, vector_of(product), product.pre);
    if (plan && given_) take_given(*plan, key);
    return plans_.emplace(key, std::move(plan)).first->second;
  }

  void take_given(Plan& plan, const PlanKey& key) {
    const std::string* const text = given_->cache.find(key.text());
    if (text == nullptr) return;
    if (const auto algorithm = algorithm_of(handle_.get(), plan, *text)) {
      plan.algorithm = *algorithm;
      plan.chosen = true;
    } else if (!std::exchange(warned_, true)) {
      std::cerr << "warning: --gpu-matmul-plans: cuBLASLt refuses the algorithm for " << key.text()
                << "; it and others like it are chosen by its heuristic\n";
    }
  }

  // Chooses the fastest of the first kTimed algorithms. They write to memory of their own in place of c, so
  // that a product that accumulates is added once.
  template <class Factor, class Result>
  void tune(Plan& plan, const PlanKey& key, const ProductOf<Factor, Result>& product, StreamHandle stream) {
    const std::int64_t elements = (product.batch - 1) * product.stride_c + product.m * product.ldc;
    void* const c = allocate(static_cast<std::size_t>(elements) * sizeof(Result));
    check_cuda(c == nullptr ? cudaErrorMemoryAllocation : cudaSuccess, "allocating a product to be timed");
    float least = 0;
    bool first = true;
    for (const cublasLtMatmulAlgo_t& algorithm : first_algorithms(handle_.get(), plan, key, kTimed)) {
      const float time = milliseconds(plan, algorithm, product, static_cast<Result*>(c), stream);
      if (!std::exchange(first, false) && time >= least) continue;
      least = time;
      plan.algorithm = algorithm;
    }
    deallocate(c);
    plan.chosen = true;
    given_->cache.set(key.text(), text_of(plan.algorithm));
  }

  // The median of five runs on the device, after one that is not timed.
  template <class Factor, class Result>
  float milliseconds(const Plan& plan, const cublasLtMatmulAlgo_t& algorithm,
                     const ProductOf<Factor, Result>& product, Result* c, StreamHandle stream) {
    const Event begin(EventKind::time), end(EventKind::time);
    std::array<float, 5> times = {};
    launch(plan, algorithm, product, c, stream);
    for (float& time : times) {
      record(begin, stream);
      launch(plan, algorithm, product, c, stream);
      record(end, stream);
      wait_for(end);
      time = milliseconds_between(begin, end);
    }
    std::ranges::sort(times);
    return times[times.size() / 2];
  }

  Precision precision_;
  std::shared_ptr<GemmPlans> given_;
  Handle handle_;
  void* workspace_;
  std::map<PlanKey, std::optional<Plan>> plans_;
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<Gemm> make_library_gemm(Precision precision, std::shared_ptr<GemmPlans> plans) {
  return std::make_unique<CublasLtGemm>(precision, std::move(plans));
}

}  // namespace stagegpt::gpu
