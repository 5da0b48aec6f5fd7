// The ops a machine must know to train GPT-2. Every op is a public method that checks shapes and element
// types once, for all backends, and calls a private virtual kernel. Destinations come first and are allocated
// by the caller. An op that returns may still be running: synchronize() waits.
//
// Dimensions: B batch, T time, C channels, NH heads, HS = C/NH head size, V vocabulary, Vp vocabulary padded.
// N stands for any number of rows, so (B,T,C) is accepted where (N,C) is written. Arithmetic tensors of one
// call share one dtype. Broken preconditions are InternalErrors: they cannot come from a user's input.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "common/backend/op_types.h"
#include "common/backend/profiler.h"
#include "common/tensor/caching_allocator.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

class Backend {
 public:
  explicit Backend(std::unique_ptr<MemorySource> memory);
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Without fusion every fused op is composed of primitive ones: slower, and the reference for the fused.
  void set_fused(bool fused) { fused_ = fused; }
  // From now on results have the same bits with any number of threads: some kernels are slower for it.
  virtual void set_reproducible(bool /*reproducible*/) {}
  // Times every op into `profiler`, synchronizing after each, with the work it had; nullptr stops.
  void set_profiler(Profiler* profiler) { profiler_ = profiler; }

  // ---- Memory -------------------------------------------------------------------------------------------
  Tensor allocate(DType dtype, Shape shape);  // contents undefined
  Tensor zeros(DType dtype, Shape shape);
  MemoryStats memory_stats() const { return allocator_->stats(); }
  // From here on the peak is counted anew.
  void forget_memory_peak() { allocator_->forget_peak(); }
  void fill(const Tensor& out, double value);
  void copy(const Tensor& out, const Tensor& in);  // same dtype and number of elements
  // Whole tensors to and from host memory of the same dtype and size. The first returns when `in` has been
  // read, the second when `out` is there.
  void copy_from_host(const Tensor& out, std::span<const std::byte> in);
  void copy_to_host(std::span<std::byte> out, const Tensor& in);
  virtual void synchronize() = 0;

  // ---- Primitive ops ------------------------------------------------------------------------------------
  // out = a + b, element by element; `out` may be `a`.
  void add(const Tensor& out, const Tensor& a, const Tensor& b);

  // out bf16 = in f32, rounded to nearest, ties to even; same number of elements.
  void cast(const Tensor& out, const Tensor& in);

  // out (B,T,C) = wte[ids] + wpe[0…T-1]; ids i32 (B,T), wte (Vp,C), wpe (P,C) with P >= T. wte may be bf16
  // where the others are f32.
  void embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte, const Tensor& wpe);
  void embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout, const Tensor& ids);

  // out (N,O) = x (N,I) · wᵀ + bias; w (O,I), bias (O) or undefined. In the forward w may be bf16 where the
  // others are f32; sums are f32 then too.
  void linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias);
  void linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x,
                       const Tensor& w);

  // out = activation(x), element by element. In the backward dx.tensor may be x.
  void activation_forward(const Tensor& out, const Tensor& x, Activation activation);
  void activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x, Activation activation);

  // out (N,C) = (x - mean) · rstd · w + bias, with mean and 1/√(variance + eps) of each row in mean, rstd
  // (N). Ba, Kiros and Hinton, arXiv:1607.06450, section 3.
  void layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                         const Tensor& w, const Tensor& bias, double eps);
  void layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                          const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd);

  // Causal self-attention of n_head heads over packed queries, keys and values: for each head
  // out = dropout(softmax(q·kᵀ/√HS + causal mask)) · v. qkv (B,T,3C), out (B,T,C); lse (B,NH,T) receives the
  // logarithm of each softmax's denominator. Element ((b·NH + h)·T + t)·T + s of the dropout sequence belongs
  // to query t and key s. Vaswani et al., arXiv:1706.03762, section 3.2.
  void attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head,
                         const Dropout& dropout);
  void attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                          const Tensor& qkv, int n_head, const Dropout& dropout);

  // The same without dropout for T new tokens of each sequence, the first of which is token `first`: they
  // attend to the tokens before them and to themselves. Row t of cache (B,P,2C) holds key and value of token
  // t; rows before `first` are read, those of the new tokens are written. qkv (B,T,3C), out (B,T,C), first +
  // T <= P.
  void cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                std::int64_t first);

  // out = x with elements dropped.
  void dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout);
  void dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout);

  // loss (1) = mean over rows of lse - logits[target], lse (N) = log Σ exp(logits) over the first vocab_size
  // columns of logits (N,Vp); the columns behind are padding. targets i32 (N).
  void cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                             const Tensor& targets, std::int64_t vocab_size);
  // dlogits (N,Vp) = dloss/N · (softmax - one hot), zero in the padding. `dlogits` may be `logits`.
  void cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                              const Tensor& lse, const Tensor& targets, std::int64_t vocab_size);

  // count i32 (1) = number of rows of logits (N,Vp) whose largest of the first vocab_size columns, of equal
  // ones the first, is the target's. targets i32 (N). A row with NaN does not count.
  void count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                     std::int64_t vocab_size);

  // out f64 (1) = Σ x², in an order that does not depend on the number of threads.
  void squared_norm(const Tensor& out, const Tensor& x);

  // One AdamW step over flat tensors of one size, with decoupled weight decay (Loshchilov and Hutter,
  // arXiv:1711.05101, algorithm 2). Gradients are first scaled by min(1, max_grad_norm / (√squared_norm +
  // 1e-6)), with squared_norm f64 (1); if that is not finite, nothing is changed. Elements outside every
  // range stay.
  void adamw(const Tensor& weights, const Tensor& m, const Tensor& v, const Tensor& grads,
             const Tensor& squared_norm, std::span<const DecayRange> ranges, const AdamWStep& step);

  // ---- Fused ops: each has a default, composed of the primitives ----------------------------------------
  // out = activation(pre), pre (N,O) = x · wᵀ + bias.
  void linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                 const Tensor& bias, Activation activation);
  // sum = x + residual, out = layernorm(sum).
  void residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                  const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                  const Tensor& w, const Tensor& bias, double eps);

 protected:
  // The fused ops' defaults. A backend that fuses overrides them.
  virtual void do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x,
                                            const Tensor& w, const Tensor& bias, Activation activation);
  virtual void do_residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                             const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                             const Tensor& w, const Tensor& bias, double eps);

 private:
  virtual void do_fill(const Tensor& out, double value) = 0;
  virtual void do_copy(const Tensor& out, const Tensor& in) = 0;
  virtual void do_copy_from_host(void* out, const void* in, std::size_t bytes) = 0;
  virtual void do_copy_to_host(void* out, const void* in, std::size_t bytes) = 0;
  virtual void do_add(const Tensor& out, const Tensor& a, const Tensor& b) = 0;
  virtual void do_cast(const Tensor& out, const Tensor& in) = 0;
  virtual void do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                                    const Tensor& wpe) = 0;
  virtual void do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                                     const Tensor& ids) = 0;
  virtual void do_linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) = 0;
  virtual void do_linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                  const Tensor& x, const Tensor& w) = 0;
  virtual void do_activation_forward(const Tensor& out, const Tensor& x, Activation activation) = 0;
  virtual void do_activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                                      Activation activation) = 0;
  virtual void do_layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd,
                                    const Tensor& x, const Tensor& w, const Tensor& bias, double eps) = 0;
  virtual void do_layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                     const Tensor& x, const Tensor& w, const Tensor& mean,
                                     const Tensor& rstd) = 0;
  virtual void do_attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head,
                                    const Dropout& dropout) = 0;
  virtual void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out,
                                     const Tensor& lse, const Tensor& qkv, int n_head,
                                     const Dropout& dropout) = 0;
  virtual void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv,
                                           int n_head, std::int64_t first) = 0;
  virtual void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) = 0;
  virtual void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) = 0;
  virtual void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                        const Tensor& targets, std::int64_t vocab_size) = 0;
  virtual void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                         const Tensor& lse, const Tensor& targets,
                                         std::int64_t vocab_size) = 0;
  virtual void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                                std::int64_t vocab_size) = 0;
  virtual void do_squared_norm(const Tensor& out, const Tensor& x) = 0;
  virtual void do_adamw(const Tensor& weights, const Tensor& m, const Tensor& v, const Tensor& grads,
                        const Tensor& squared_norm, std::span<const DecayRange> ranges,
                        const AdamWStep& step) = 0;

  template <class Kernel>
  void run(const char* name, const Work& work, const Kernel& kernel);

  std::shared_ptr<CachingAllocator> allocator_;
  bool fused_ = true;
  Profiler* profiler_ = nullptr;
};

// Whole tensors between the host and a backend.
template <class T>
void upload(Backend& backend, const Tensor& out, std::span<const T> in) {
  check(out.dtype() == kDTypeOf<T>, "upload: ", kDTypeOf<T>, " into ", out.dtype());
  backend.copy_from_host(out, std::as_bytes(in));
}

template <class T>
Tensor to_device(Backend& backend, Shape shape, std::span<const T> in) {
  Tensor out = backend.allocate(kDTypeOf<T>, shape);
  upload(backend, out, in);
  return out;
}

template <class T>
std::vector<T> to_host(Backend& backend, const Tensor& in) {
  check(in.dtype() == kDTypeOf<T>, "to_host: ", in.dtype(), " as ", kDTypeOf<T>);
  std::vector<T> out(static_cast<std::size_t>(in.numel()));
  backend.copy_to_host(std::as_writable_bytes(std::span(out)), in);
  return out;
}

}  // namespace stagegpt
