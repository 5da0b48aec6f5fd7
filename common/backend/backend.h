// The tensor operations that GPT-2 needs, for training and for inference. Each op is a public method of
// Backend, which checks the shapes and element types of its arguments and then calls the op's kernel. The
// kernels of a backend are virtual functions: see Kernels, below.
//
// The caller allocates the outputs, and passes them first. A method may return before its op has finished:
// synchronize() waits for all ops.
//
// Dimensions: B batch, T time, C channels, NH heads, HS = C/NH head size, V vocabulary, Vp padded vocabulary.
// N is any number of rows: where (N,C) is written, (B,T,C) is accepted. All floating-point tensors of one
// call have the same dtype, unless the op says otherwise. Where activations are bf16, these are f32:
// statistics (mean, rstd, lse, loss), LayerNorm's parameters, and the gradients of all parameters. An
// argument that violates an op's conditions is an InternalError, because no input of a user can cause it.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>

#include "common/backend/device_work.h"
#include "common/backend/op_types.h"
#include "common/backend/recording.h"
#include "common/backend/work_timer.h"
#include "common/tensor/caching_allocator.h"
#include "common/tensor/tensor.h"

namespace stagegpt {

class Kernels;
class OpObserver;
struct Work;

// A copy of a whole tensor to host memory of the same size.
struct HostCopy {
  std::span<std::byte> out;
  Tensor in;
};

class Backend {
 public:
  // `kernels` is usually the derived class itself. Without kernels, ops check their arguments and compute
  // nothing: see planning_backend.h.
  Backend(std::unique_ptr<MemorySource> memory, Kernels* kernels);
  virtual ~Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  // Without fusion, a fused op calls the primitive ops that it combines. This is slower; tests compare the
  // fused kernels with it.
  void set_fused(bool fused) { fused_ = fused; }
  // Makes results independent of the number of threads, bit for bit. Some kernels become slower.
  virtual void set_reproducible(bool /*reproducible*/) {}

  // ---- Memory -------------------------------------------------------------------------------------------
  Tensor allocate(DType dtype, Shape shape);  // contents undefined
  Tensor zeros(DType dtype, Shape shape);
  MemoryStats memory_stats() const { return allocator_->stats(); }
  // Sets the peak to the memory that is in use now.
  void forget_memory_peak() { allocator_->forget_peak(); }
  // Gives memory that is kept for reuse back to the system.
  void release_free_memory() { allocator_->release(); }
  void fill(const Tensor& out, double value);
  void copy(const Tensor& out, const Tensor& in);  // same dtype and number of elements
  // Copy a whole tensor between the backend and host memory of the same size. The first returns when `in` has
  // been read, the second when `out` has been written.
  void copy_from_host(const Tensor& out, std::span<const std::byte> in);
  void copy_to_host(std::span<std::byte> out, const Tensor& in);
  // The second for several tensors, with one wait for all of them.
  void copy_to_host(std::span<const HostCopy> copies);
  // Sends host memory ahead of its use: if the backend is a device, beside the ops that it computes. Returns
  // when `in` has been read. receive() then copies to `out` what was sent last, in the order of the ops.
  void send_ahead(std::span<const std::byte> in);
  void receive(const Tensor& out);
  virtual void synchronize() = 0;
  // A clock for this backend's work; it may not outlive the backend.
  virtual std::unique_ptr<WorkTimer> make_timer() { return std::make_unique<HostTimer>(); }
  // Does `work`, or what it did at an earlier call with the same recording. Therefore it must always call the
  // same ops with the same arguments, and may not wait for them; what differs is in the contents of tensors
  // that exist before it. Without records() it is called every time, and also while ops are observed.
  void repeat(Recording& recording, const std::function<void()>& work);
  virtual bool records() const { return false; }
  // What the process has asked of its device so far; nothing if there is none.
  virtual std::optional<DeviceWork> device_work() const { return std::nullopt; }
  // FLOP/s of fused multiply-adds on values in registers, by all threads: measured, in about 10 ms. Nothing
  // if this backend cannot measure it.
  virtual std::optional<double> multiply_add_rate() { return std::nullopt; }

  // ---- Primitive ops ------------------------------------------------------------------------------------
  // out = a + b, element by element; `out` may be `a`.
  void add(const Tensor& out, const Tensor& a, const Tensor& b);

  // out = in, from f32 to bf16, rounded to nearest, ties to even, or from bf16 to f32; same number of
  // elements.
  void cast(const Tensor& out, const Tensor& in);

  // out i8 (O,I+4) = in f32 (O,I), quantised by rows: quantised_rows.h.
  void quantise_rows(const Tensor& out, const Tensor& in);
  // Whether this backend has kernels for quantised matrices.
  virtual bool reads_quantised_rows() const { return true; }

  // out i32 = in - first where that is in [0, count), and `absent` elsewhere, in the shape of `in`: the ids
  // of tokens in a part of the vocabulary.
  void ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first, std::int64_t count,
                   std::int64_t absent);

  // out (B,T,C) = wte[ids] + wpe[0…T-1]; ids i32 (B,T), wte (Vp,C), wpe (P,C) with P >= T. wte may be bf16
  // or quantised while the others are f32. Without wpe, only wte[ids]. A token whose id is Vp is not in this
  // wte: its row is zero, and it contributes nothing to dwte.
  void embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte, const Tensor& wpe);
  void embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout, const Tensor& ids);

  // out (N,O) = x (N,I) · wᵀ + bias; w (O,I), bias (O) or undefined. In linear_forward, w may be bf16
  // or quantised while the others are f32; it still accumulates in f32.
  void linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias);
  void linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x,
                       const Tensor& w);

  // out = activation(x), element by element. In activation_backward, dx.tensor may be x or dout.
  void activation_forward(const Tensor& out, const Tensor& x, Activation activation);
  void activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x, Activation activation);

  // out (N,C) = (x - mean) · rstd · w + bias, with mean and 1/√(variance + eps) of each row in mean, rstd
  // (N). Ba, Kiros and Hinton, arXiv:1607.06450, section 3.
  void layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                         const Tensor& w, const Tensor& bias, double eps);
  void layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                          const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd);

  // Causal self-attention of n_head heads over packed queries, keys and values: for each head
  // out = dropout(softmax(scale·q·kᵀ + causal mask)) · v. qkv (B,T,3C), out (B,T,C); lse (B,NH,T) receives
  // the logarithm of each softmax's denominator. GPT-2's scale is 1/√HS. Element ((b·NH + h)·T + t)·T + s of
  // the dropout sequence belongs to query t and key s. Vaswani et al., arXiv:1706.03762, section 3.2.
  void attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head, double scale,
                         const Dropout& dropout);
  void attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                          const Tensor& qkv, int n_head, double scale, const Dropout& dropout);

  // The same for inference, without dropout and with a cache of keys and values. The T new tokens of each
  // sequence have the indices first … first + T - 1; each attends to all tokens up to itself. Row t of cache
  // (B,P,2C) holds the key and the value of token t: rows before `first` are read, rows of the new tokens are
  // written. qkv (B,T,3C), out (B,T,C), first + T <= P.
  void cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                double scale, std::int64_t first);

  // out = x, with elements dropped (Dropout in op_types.h).
  void dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout);
  void dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout);

  // loss (1) = mean over rows of lse - logits[target], lse (N) = log Σ exp(logits) over the first vocab_size
  // columns of logits (N,Vp); the other columns are padding. targets i32 (N), each below vocab_size.
  void cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                             const Tensor& targets, std::int64_t vocab_size);
  // dlogits (N,Vp) = dloss/N · (softmax - one hot), zero in the padding. `dlogits` may be `logits`. A target
  // that is vocab_size or more has no column here, and its row no one.
  void cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                              const Tensor& lse, const Tensor& targets, std::int64_t vocab_size);

  // The same for logits whose columns are divided into parts, as by several ranks. First, for one part
  // (N,Vp): lse (N) over its columns, and picked (N) = logits[target], or 0 where the target is vocab_size or
  // more, because another part has it. Then, with parts (R,2,N), which are lse and picked of all R parts:
  // lse (N) = log Σ_r exp(lse_r), loss (1) = mean over rows of lse - Σ_r picked_r, added in the order of
  // parts. cross_entropy_backward with this lse gives the gradient of each part.
  void cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                  const Tensor& targets, std::int64_t vocab_size);
  void cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts);

  // count i32 (1) = number of rows of logits (N,Vp) whose argmax over the first vocab_size columns is the
  // target; the argmax of equal logits is the first. targets i32 (N). A row with a NaN is never counted.
  void count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                     std::int64_t vocab_size);

  // out f64 (1) = Σ x², in an order that does not depend on the number of threads: sums of blocks of
  // norm_block() elements, which are then added. Or, if `out` has norm_blocks(n) elements, these sums.
  void squared_norm(const Tensor& out, const Tensor& x);
  // out f64 (1) = Σ blocks, f64 (n): squared_norm() of the elements that the blocks were computed of, bit for
  // bit.
  void add_norm_blocks(const Tensor& out, const Tensor& blocks);
  virtual std::int64_t norm_block() const { return 1 << 14; }
  std::int64_t norm_blocks(std::int64_t n) const { return (n + norm_block() - 1) / norm_block(); }
  // out f64 (1) = Σ x, of a few numbers x f64 (n), which are added one after the other: the same bits on
  // every backend. `out` may be an element of x.
  void sum(const Tensor& out, const Tensor& x);

  // One AdamW step over flat tensors of the same size, with decoupled weight decay (Loshchilov and Hutter,
  // arXiv:1711.05101, algorithm 2). Gradients are first scaled by min(1, max_grad_norm / (√squared_norm +
  // 1e-6)), with squared_norm f64 (1); if that is not finite, nothing is changed. Elements outside all
  // ranges are not changed either. `shadow` receives the updated weights, rounded to bf16 as by cast; it is
  // undefined if there is none, and the weights are f32 otherwise.
  void adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
             const Tensor& grads, const Tensor& squared_norm, std::span<const DecayRange> ranges,
             const AdamWStep& step);

  // ---- Fused ops: one kernel in place of several primitive ops --------------------------------------------
  // out = activation(pre), pre (N,O) = x · wᵀ + bias.
  void linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                                 const Tensor& bias, Activation activation);
  // linear_backward of x = activation(pre), with the gradient of pre (N,I) in place of that of x:
  // dpre = (dout · w) ⊙ activation'(pre). dpre may be x.
  void activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                  const Tensor& x, const Tensor& pre, const Tensor& w, Activation activation);
  // sum = x + residual, out = layernorm(sum).
  void residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                  const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                  const Tensor& w, const Tensor& bias, double eps);
  // cross_entropy_forward and cross_entropy_backward, for a dloss that is known before the loss. `dlogits`
  // may be `logits`. rows (N), with the dtype of loss, is scratch memory.
  void cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& rows,
                                      const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                      std::int64_t vocab_size);

 protected:
  CachingAllocator& allocator() { return *allocator_; }

 private:
  friend class OpObserver;

  virtual void do_copy_from_host(void* out, const void* in, std::size_t bytes) = 0;
  // `buffer` is empty before, and is used for this only.
  virtual void do_send_ahead(const Tensor& buffer, std::span<const std::byte> in) {
    do_copy_from_host(buffer.raw(), in.data(), in.size());
  }
  virtual void do_receive(const Tensor& out, const Tensor& buffer);
  virtual void do_repeat(Recording&, const std::function<void()>& work) { work(); }
  // None of the tensors is empty.
  virtual void do_copy_to_host(std::span<const HostCopy> copies) = 0;

  using Operands = std::initializer_list<const Tensor*>;
  template <class Function>
  void observe(const char* op, Operands operands, const Work& work, const Function& function);
  template <class Kernel>
  void run(const char* op, Operands operands, const Work& work, const Kernel& kernel);

  std::shared_ptr<CachingAllocator> allocator_;
  Kernels* kernels_;
  Tensor sent_;  // i32, by send_ahead()
  bool fused_ = true;
  OpObserver* observer_ = nullptr;
};

// One kernel for each op, with the op's arguments, which Backend has checked. A backend implements all of
// them: if one is missing, the backend does not compile.
class Kernels {
 public:
  virtual void do_fill(const Tensor& out, double value) = 0;
  virtual void do_copy(const Tensor& out, const Tensor& in) = 0;
  virtual void do_add(const Tensor& out, const Tensor& a, const Tensor& b) = 0;
  virtual void do_cast(const Tensor& out, const Tensor& in) = 0;
  virtual void do_quantise_rows(const Tensor& out, const Tensor& in) = 0;
  virtual void do_ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first, std::int64_t count,
                              std::int64_t absent) = 0;
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
                                    double scale, const Dropout& dropout) = 0;
  virtual void do_attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out,
                                     const Tensor& lse, const Tensor& qkv, int n_head, double scale,
                                     const Dropout& dropout) = 0;
  virtual void do_cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv,
                                           int n_head, double scale, std::int64_t first) = 0;
  virtual void do_dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) = 0;
  virtual void do_dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) = 0;
  virtual void do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                        const Tensor& targets, std::int64_t vocab_size) = 0;
  virtual void do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                         const Tensor& lse, const Tensor& targets,
                                         std::int64_t vocab_size) = 0;
  virtual void do_cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                             const Tensor& targets, std::int64_t vocab_size) = 0;
  virtual void do_cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) = 0;
  virtual void do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                                std::int64_t vocab_size) = 0;
  virtual void do_squared_norm(const Tensor& out, const Tensor& x) = 0;
  virtual void do_add_norm_blocks(const Tensor& out, const Tensor& blocks) = 0;
  virtual void do_sum(const Tensor& out, const Tensor& x) = 0;
  virtual void do_adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
                        const Tensor& grads, const Tensor& squared_norm, std::span<const DecayRange> ranges,
                        const AdamWStep& step) = 0;
  virtual void do_linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x,
                                            const Tensor& w, const Tensor& bias, Activation activation) = 0;
  virtual void do_activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias,
                                             const Tensor& dout, const Tensor& x, const Tensor& pre,
                                             const Tensor& w, Activation activation) = 0;
  virtual void do_residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                             const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                             const Tensor& w, const Tensor& bias, double eps) = 0;
  virtual void do_cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits,
                                                 const Tensor& rows, const Tensor& dloss,
                                                 const Tensor& logits, const Tensor& targets,
                                                 std::int64_t vocab_size) = 0;

 protected:
  ~Kernels() = default;
};

// Copy whole tensors between the host and a backend.
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

// A copy into `out`, one element for each of the tensor.
template <class T>
HostCopy host_copy(std::span<T> out, const Tensor& in) {
  check(in.dtype() == kDTypeOf<T>, "host_copy: ", in.dtype(), " as ", kDTypeOf<T>);
  return {std::as_writable_bytes(out), in};
}

// The elements of an f32 or bf16 tensor.
std::vector<float> floats_to_host(Backend& backend, const Tensor& in);

}  // namespace stagegpt
