#include "common/backend/backend.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "common/backend/op_checks.h"
#include "common/backend/op_observer.h"
#include "common/backend/work.h"
#include "common/tensor/half_floats.h"

namespace stagegpt {
namespace {

constexpr std::array<std::pair<Activation, std::string_view>, 4> kActivationNames = {{
    {Activation::none, "none"},
    {Activation::gelu_new, "gelu_new"},
    {Activation::gelu, "gelu"},
    {Activation::relu, "relu"},
}};

}  // namespace

std::string_view name_of(Activation activation) {
  return kActivationNames[static_cast<std::size_t>(activation)].second;
}

std::optional<Activation> activation_named(std::string_view name) {
  for (const auto& [activation, known] : kActivationNames) {
    if (known == name) return activation;
  }
  return std::nullopt;
}

std::vector<float> floats_to_host(Backend& backend, const Tensor& in) {
  if (in.dtype() != DType::bf16) return to_host<float>(backend, in);
  const std::vector<Bf16> halves = to_host<Bf16>(backend, in);
  std::vector<float> floats(halves.size());
  std::ranges::transform(halves, floats.begin(), [](Bf16 half) { return as_float(half); });
  return floats;
}

Backend::Backend(std::unique_ptr<MemorySource> memory, Kernels* kernels)
    : allocator_(std::make_shared<CachingAllocator>(std::move(memory))), kernels_(kernels) {}

// Calls `function`, through the observer if there is one.
template <class Function>
void Backend::observe(const char* op, Operands operands, const Work& work, const Function& function) {
  if (observer_ == nullptr) return function();
  observer_->around({op, work, operands}, std::cref(function));
}

// The same for a function that calls a kernel.
template <class Kernel>
void Backend::run(const char* op, Operands operands, const Work& work, const Kernel& kernel) {
  observe(op, operands, work, [&] {
    if (kernels_ != nullptr) kernel();
  });
}

Tensor Backend::allocate(DType dtype, Shape shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return {std::make_shared<Storage>(allocator_, bytes), dtype, shape};
}

Tensor Backend::zeros(DType dtype, Shape shape) {
  Tensor out = allocate(dtype, shape);
  fill(out, 0);
  return out;
}

void Backend::fill(const Tensor& out, double value) {
  check(out.defined(), "fill: out is missing");
  run("fill", {&out}, work::fill(out), [&] { kernels_->do_fill(out, value); });
}

void Backend::copy(const Tensor& out, const Tensor& in) {
  const Checks checks("copy");
  check(in.defined(), "copy: in is missing");
  checks.elements(out, in.dtype(), in.numel(), "out");
  run("copy", {&out, &in}, work::copy(out, in), [&] { kernels_->do_copy(out, in); });
}

void Backend::copy_from_host(const Tensor& out, std::span<const std::byte> in) {
  check(out.defined(), "copy_from_host: out is missing");
  check(out.bytes() == in.size(), "copy_from_host: ", in.size(), " bytes into a tensor of ", out.bytes());
  if (!in.empty())
    observe("copy_from_host", {&out}, work::transfer(out),
            [&] { do_copy_from_host(out.raw(), in.data(), in.size()); });
}

void Backend::copy_to_host(std::span<std::byte> out, const Tensor& in) {
  const HostCopy copy{out, in};
  copy_to_host({&copy, 1});
}

void Backend::copy_to_host(std::span<const HostCopy> copies) {
  std::vector<HostCopy> filled;
  Work work;
  for (const auto& [out, in] : copies) {
    check(in.defined(), "copy_to_host: in is missing");
    check(in.bytes() == out.size(), "copy_to_host: a tensor of ", in.bytes(), " bytes into ", out.size());
    if (out.empty()) continue;
    filled.push_back({out, in});
    work.bytes += work::transfer(in).bytes;
  }
  if (!filled.empty()) observe("copy_to_host", {&filled.front().in}, work, [&] { do_copy_to_host(filled); });
}

void Backend::send_ahead(std::span<const std::byte> in) {
  const auto words = static_cast<std::int64_t>(in.size() / sizeof(std::int32_t));
  check(in.size() % sizeof(std::int32_t) == 0 && words > 0, "send_ahead: ", in.size(), " bytes");
  if (!sent_.defined() || sent_.numel() != words) sent_ = allocate(DType::i32, {words});
  do_send_ahead(sent_, in);
}

void Backend::receive(const Tensor& out) {
  const Checks checks("receive");
  checks.that(sent_.defined(), "a call of send_ahead() before it");
  checks.elements(out, DType::i32, sent_.numel(), "out");
  observe("copy_from_host", {&out}, work::transfer(out), [&] { do_receive(out, sent_); });
}

void Backend::do_receive(const Tensor& out, const Tensor& buffer) {
  if (kernels_ != nullptr) kernels_->do_copy(out, buffer);
}

void Backend::repeat(Recording& recording, const std::function<void()>& work) {
  observer_ == nullptr ? do_repeat(recording, work) : work();
}

void Backend::add(const Tensor& out, const Tensor& a, const Tensor& b) {
  const Checks checks("add");
  checks.real(a, "a");
  checks.elements(b, a.dtype(), a.numel(), "b");
  checks.elements(out, a.dtype(), a.numel(), "out");
  run("add", {&out, &a, &b}, work::add(out, a, b), [&] { kernels_->do_add(out, a, b); });
}

void Backend::cast(const Tensor& out, const Tensor& in) {
  const Checks checks("cast");
  const bool narrows = !out.defined() || out.dtype() == DType::bf16;
  checks.dtype(in, narrows ? DType::f32 : DType::bf16, "in");
  checks.elements(out, narrows ? DType::bf16 : DType::f32, in.numel(), "out");
  run("cast", {&out, &in}, work::cast(out, in), [&] { kernels_->do_cast(out, in); });
}

void Backend::quantise_rows(const Tensor& out, const Tensor& in) {
  const Checks checks("quantise_rows");
  checks.dtype(in, DType::f32, "in");
  checks.that(in.shape().rank() == 2, "a matrix of shape (O,I)");
  checks.shape(out, DType::i8, {in.shape()[0], quantised_width(in.shape()[1])}, "out");
  run("quantise_rows", {&out, &in}, work::cast(out, in), [&] { kernels_->do_quantise_rows(out, in); });
}

void Backend::ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first, std::int64_t count,
                          std::int64_t absent) {
  const Checks checks("ids_in_part");
  checks.dtype(in, DType::i32, "in");
  checks.shape(out, DType::i32, in.shape(), "out");
  checks.that(first >= 0 && count > 0 && absent >= count, "an id outside the part for absent tokens");
  run("ids_in_part", {&out, &in}, work::copy(out, in),
      [&] { kernels_->do_ids_in_part(out, in, first, count, absent); });
}

void Backend::embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte, const Tensor& wpe) {
  const Checks checks("embedding_forward");
  checks.real(out, "out");
  checks.weight(wte, out.dtype(), "wte");
  checks.dtype(ids, DType::i32, "ids");
  checks.that(ids.shape().rank() == 2, "ids of shape (B,T)");
  const std::int64_t B = ids.shape()[0], T = ids.shape()[1], C = columns_of(wte);
  checks.shape(out, out.dtype(), {B, T, C}, "out");
  if (wpe.defined()) {
    checks.shape(wpe, out.dtype(), {wpe.shape()[0], C}, "wpe");
    checks.that(wpe.shape()[0] >= T, "at least T positions of C channels");
  }
  run("embedding_forward", {&out, &ids, &wte}, work::embedding_forward(out, ids, wte, wpe),
      [&] { kernels_->do_embedding_forward(out, ids, wte, wpe); });
}

void Backend::embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout, const Tensor& ids) {
  const Checks checks("embedding_backward");
  checks.real(dout, "dout");
  checks.dtype(ids, DType::i32, "ids");
  checks.that(ids.shape().rank() == 2, "ids of shape (B,T)");
  const std::int64_t B = ids.shape()[0], T = ids.shape()[1], C = dout.shape()[-1];
  checks.shape(dout, dout.dtype(), {B, T, C}, "dout");
  const DType statistics = statistics_dtype(dout.dtype());
  if (dwte.wanted()) {
    checks.dtype(dwte.tensor, statistics, "dwte");
    checks.shape(dwte.tensor, statistics, {dwte.tensor.shape()[0], C}, "dwte");
  }
  if (dwpe.wanted()) {
    checks.dtype(dwpe.tensor, statistics, "dwpe");
    checks.shape(dwpe.tensor, statistics, {dwpe.tensor.shape()[0], C}, "dwpe");
    checks.that(dwpe.tensor.shape()[0] >= T, "at least T positions in dwpe");
  }
  run("embedding_backward", {&dwte.tensor, &dout, &ids}, work::embedding_backward(dwte, dwpe, dout, ids),
      [&] { kernels_->do_embedding_backward(dwte, dwpe, dout, ids); });
}

void Backend::linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias) {
  const Checks checks("linear_forward");
  check_linear(checks, out, x, w);
  check_optional_bias(checks, bias, x, w);
  run("linear_forward", {&out, &x, &w}, work::linear_forward(out, x, w, bias),
      [&] { kernels_->do_linear_forward(out, x, w, bias); });
}

void Backend::linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                              const Tensor& x, const Tensor& w) {
  const Checks checks("linear_backward");
  check_linear(checks, dout, x, w);
  checks.grad(dx, x.dtype(), x.shape(), "dx");
  checks.grad(dw, statistics_dtype(x.dtype()), w.shape(), "dw");
  checks.grad(dbias, statistics_dtype(x.dtype()), {w.shape()[0]}, "dbias");
  run("linear_backward", {&dx.tensor, &dw.tensor, &dout, &x, &w},
      work::linear_backward(dx, dw, dbias, dout, x, w),
      [&] { kernels_->do_linear_backward(dx, dw, dbias, dout, x, w); });
}

void Backend::activation_forward(const Tensor& out, const Tensor& x, Activation activation) {
  const Checks checks("activation_forward");
  checks.real(x, "x");
  checks.shape(out, x.dtype(), x.shape(), "out");
  run("activation_forward", {&out, &x}, work::activation_forward(out, x, activation),
      [&] { kernels_->do_activation_forward(out, x, activation); });
}

void Backend::activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x,
                                  Activation activation) {
  const Checks checks("activation_backward");
  checks.real(x, "x");
  checks.shape(dout, x.dtype(), x.shape(), "dout");
  checks.grad(dx, x.dtype(), x.shape(), "dx");
  run("activation_backward", {&dx.tensor, &dout, &x}, work::activation_backward(dx, dout, x, activation),
      [&] { kernels_->do_activation_backward(dx, dout, x, activation); });
}

void Backend::layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                                const Tensor& w, const Tensor& bias, double eps) {
  const Checks checks("layernorm_forward");
  check_layernorm(checks, out, x, w, mean, rstd);
  checks.shape(bias, w.dtype(), w.shape(), "bias");
  run("layernorm_forward", {&out, &x, &w}, work::layernorm_forward(out, mean, rstd, x, w, bias),
      [&] { kernels_->do_layernorm_forward(out, mean, rstd, x, w, bias, eps); });
}

void Backend::layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                 const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd) {
  const Checks checks("layernorm_backward");
  check_layernorm(checks, dout, x, w, mean, rstd);
  checks.grad(dx, x.dtype(), x.shape(), "dx");
  checks.grad(dw, w.dtype(), w.shape(), "dw");
  checks.grad(dbias, w.dtype(), w.shape(), "dbias");
  run("layernorm_backward", {&dx.tensor, &dw.tensor, &dout, &x, &w},
      work::layernorm_backward(dx, dw, dbias, dout, x, w, mean, rstd),
      [&] { kernels_->do_layernorm_backward(dx, dw, dbias, dout, x, w, mean, rstd); });
}

void Backend::attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv, int n_head,
                                double scale, const Dropout& dropout) {
  check_attention(Checks("attention_forward"), out, lse, qkv, n_head, scale);
  run("attention_forward", {&out, &qkv}, work::attention_forward(out, lse, qkv),
      [&] { kernels_->do_attention_forward(out, lse, qkv, n_head, scale, dropout); });
}

void Backend::attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                                 const Tensor& qkv, int n_head, double scale, const Dropout& dropout) {
  const Checks checks("attention_backward");
  check_attention(checks, out, lse, qkv, n_head, scale);
  checks.shape(dout, qkv.dtype(), out.shape(), "dout");
  checks.grad(dqkv, qkv.dtype(), qkv.shape(), "dqkv");
  if (!dqkv.wanted()) return;
  run("attention_backward", {&dqkv.tensor, &dout, &out, &qkv},
      work::attention_backward(dqkv, dout, out, lse, qkv),
      [&] { kernels_->do_attention_backward(dqkv, dout, out, lse, qkv, n_head, scale, dropout); });
}

void Backend::cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                                       double scale, std::int64_t first) {
  const Checks checks("cached_attention_forward");
  checks.real(qkv, "qkv");
  checks.that(qkv.shape().rank() == 3 && qkv.shape()[2] % 3 == 0, "qkv of shape (B,T,3C)");
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  checks.that(n_head > 0 && C % n_head == 0, "a number of heads that divides the channels");
  checks.that(scale > 0, "a positive scale");
  checks.dtype(cache, qkv.dtype(), "cache");
  checks.that(cache.shape().rank() == 3, "a cache of shape (B,P,2C)");
  const std::int64_t P = cache.shape()[1];
  checks.shape(cache, qkv.dtype(), {B, P, 2 * C}, "cache");
  checks.that(first >= 0 && first + T <= P, "room for the new tokens in the cache");
  checks.shape(out, qkv.dtype(), {B, T, C}, "out");
  run("cached_attention_forward", {&out, &cache, &qkv},
      work::cached_attention_forward(out, cache, qkv, n_head, first),
      [&] { kernels_->do_cached_attention_forward(out, cache, qkv, n_head, scale, first); });
}

void Backend::dropout_forward(const Tensor& out, const Tensor& x, const Dropout& dropout) {
  const Checks checks("dropout_forward");
  checks.real(x, "x");
  checks.shape(out, x.dtype(), x.shape(), "out");
  run("dropout_forward", {&out, &x}, work::dropout_forward(out, x),
      [&] { kernels_->do_dropout_forward(out, x, dropout); });
}

void Backend::dropout_backward(const Grad& dx, const Tensor& dout, const Dropout& dropout) {
  const Checks checks("dropout_backward");
  checks.real(dout, "dout");
  checks.grad(dx, dout.dtype(), dout.shape(), "dx");
  if (!dx.wanted()) return;
  run("dropout_backward", {&dx.tensor, &dout}, work::dropout_backward(dx, dout),
      [&] { kernels_->do_dropout_backward(dx, dout, dropout); });
}

void Backend::cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                    const Tensor& targets, std::int64_t vocab_size) {
  const Checks checks("cross_entropy_forward");
  check_cross_entropy(checks, logits, lse, targets, vocab_size);
  checks.elements(loss, statistics_dtype(logits.dtype()), 1, "loss");
  run("cross_entropy_forward", {&logits, &targets},
      work::cross_entropy_forward(loss, lse, logits, targets, vocab_size),
      [&] { kernels_->do_cross_entropy_forward(loss, lse, logits, targets, vocab_size); });
}

void Backend::cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                                     const Tensor& lse, const Tensor& targets, std::int64_t vocab_size) {
  const Checks checks("cross_entropy_backward");
  check_cross_entropy(checks, logits, lse, targets, vocab_size);
  checks.elements(dloss, statistics_dtype(logits.dtype()), 1, "dloss");
  checks.shape(dlogits, logits.dtype(), logits.shape(), "dlogits");
  run("cross_entropy_backward", {&dlogits, &logits, &targets},
      work::cross_entropy_backward(dlogits, dloss, logits, lse, targets, vocab_size),
      [&] { kernels_->do_cross_entropy_backward(dlogits, dloss, logits, lse, targets, vocab_size); });
}

void Backend::cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                         const Tensor& targets, std::int64_t vocab_size) {
  const Checks checks("cross_entropy_part_forward");
  check_cross_entropy(checks, logits, lse, targets, vocab_size);
  checks.elements(picked, lse.dtype(), lse.numel(), "picked");
  run("cross_entropy_part_forward", {&logits, &targets},
      work::cross_entropy_part_forward(lse, picked, logits, targets, vocab_size),
      [&] { kernels_->do_cross_entropy_part_forward(lse, picked, logits, targets, vocab_size); });
}

void Backend::cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) {
  const Checks checks("cross_entropy_of_parts");
  checks.real(lse, "lse");
  checks.real(parts, "parts");
  checks.that(parts.shape().rank() == 3 && parts.shape()[0] > 0, "parts of shape (R,2,N)");
  checks.shape(parts, lse.dtype(), {parts.shape()[0], 2, lse.numel()}, "parts");
  checks.elements(loss, lse.dtype(), 1, "loss");
  run("cross_entropy_of_parts", {&lse, &parts}, work::cross_entropy_of_parts(loss, lse, parts),
      [&] { kernels_->do_cross_entropy_of_parts(loss, lse, parts); });
}

void Backend::count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                            std::int64_t vocab_size) {
  const Checks checks("count_correct");
  check_classes(checks, logits, targets, vocab_size);
  checks.elements(count, DType::i32, 1, "count");
  run("count_correct", {&count, &logits, &targets}, work::count_correct(count, logits, targets, vocab_size),
      [&] { kernels_->do_count_correct(count, logits, targets, vocab_size); });
}

void Backend::squared_norm(const Tensor& out, const Tensor& x) {
  const Checks checks("squared_norm");
  checks.real(x, "x");
  checks.elements(out, DType::f64, out.numel() == 1 ? 1 : norm_blocks(x.numel()), "out");
  run("squared_norm", {&out, &x}, work::squared_norm(out, x), [&] { kernels_->do_squared_norm(out, x); });
}

void Backend::add_norm_blocks(const Tensor& out, const Tensor& blocks) {
  const Checks checks("add_norm_blocks");
  checks.dtype(blocks, DType::f64, "blocks");
  checks.elements(out, DType::f64, 1, "out");
  run("add_norm_blocks", {&out, &blocks}, work::sum(out, blocks),
      [&] { kernels_->do_add_norm_blocks(out, blocks); });
}

void Backend::sum(const Tensor& out, const Tensor& x) {
  const Checks checks("sum");
  checks.dtype(x, DType::f64, "x");
  checks.elements(out, DType::f64, 1, "out");
  run("sum", {&out, &x}, work::sum(out, x), [&] { kernels_->do_sum(out, x); });
}

void Backend::adamw(const Tensor& weights, const Tensor& shadow, const Tensor& m, const Tensor& v,
                    const Tensor& grads, const Tensor& squared_norm, std::span<const DecayRange> ranges,
                    const AdamWStep& step) {
  const Checks checks("adamw");
  checks.real(weights, "weights");
  for (const Tensor& tensor : {m, v, grads})
    checks.elements(tensor, weights.dtype(), weights.numel(), "arena");
  if (shadow.defined()) {
    checks.elements(shadow, DType::bf16, weights.numel(), "shadow");
    checks.dtype(weights, DType::f32, "weights");
  }
  checks.elements(squared_norm, DType::f64, 1, "squared norm");
  for (const DecayRange& range : ranges) {
    checks.that(0 <= range.begin && range.begin <= range.end && range.end <= weights.numel(),
                "ranges inside the arena");
  }
  checks.that(step.step >= 1, "a step that counts from 1");
  if (step.rates.defined()) checks.elements(step.rates, DType::f64, 3, "rates");
  run("adamw", {&weights}, work::adamw(weights, shadow, ranges),
      [&] { kernels_->do_adamw(weights, shadow, m, v, grads, squared_norm, ranges, step); });
}

void Backend::linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x,
                                        const Tensor& w, const Tensor& bias, Activation activation) {
  const Checks checks("linear_activation_forward");
  check_linear(checks, out, x, w);
  check_optional_bias(checks, bias, x, w);
  checks.shape(pre, x.dtype(), out.shape(), "pre-activation");
  if (!fused_) {
    linear_forward(pre, x, w, bias);
    activation_forward(out, pre, activation);
    return;
  }
  run("linear_activation_forward", {&out, &pre, &x, &w},
      work::linear_activation_forward(out, pre, x, w, bias, activation),
      [&] { kernels_->do_linear_activation_forward(out, pre, x, w, bias, activation); });
}

void Backend::activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias,
                                         const Tensor& dout, const Tensor& x, const Tensor& pre,
                                         const Tensor& w, Activation activation) {
  const Checks checks("activation_linear_backward");
  check_linear(checks, dout, x, w);
  checks.shape(pre, x.dtype(), x.shape(), "pre-activation");
  checks.shape(dpre, x.dtype(), x.shape(), "dpre");
  checks.grad(dw, statistics_dtype(x.dtype()), w.shape(), "dw");
  checks.grad(dbias, statistics_dtype(x.dtype()), {w.shape()[0]}, "dbias");
  if (!fused_) {
    const Grad out{dpre, GradMode::overwrite};
    linear_backward({}, dw, dbias, dout, x, w);  // first, because dpre may be x
    linear_backward(out, {}, {}, dout, x, w);
    activation_backward(out, dpre, pre, activation);
    return;
  }
  run("activation_linear_backward", {&dpre, &dw.tensor, &dout, &x, &pre, &w},
      work::activation_linear_backward(dpre, dw, dbias, dout, x, pre, w, activation),
      [&] { kernels_->do_activation_linear_backward(dpre, dw, dbias, dout, x, pre, w, activation); });
}

void Backend::residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean,
                                         const Tensor& rstd, const Tensor& x, const Tensor& residual,
                                         const Tensor& w, const Tensor& bias, double eps) {
  const Checks checks("residual_layernorm_forward");
  check_layernorm(checks, out, x, w, mean, rstd);
  checks.shape(bias, w.dtype(), w.shape(), "bias");
  checks.shape(residual, x.dtype(), x.shape(), "residual");
  checks.shape(sum, x.dtype(), x.shape(), "sum");
  if (!fused_) {
    add(sum, x, residual);
    layernorm_forward(out, mean, rstd, sum, w, bias, eps);
    return;
  }
  run("residual_layernorm_forward", {&sum, &out, &x, &residual, &w},
      work::residual_layernorm_forward(sum, out, mean, rstd, x, residual, w, bias),
      [&] { kernels_->do_residual_layernorm_forward(sum, out, mean, rstd, x, residual, w, bias, eps); });
}

void Backend::cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& rows,
                                             const Tensor& dloss, const Tensor& logits, const Tensor& targets,
                                             std::int64_t vocab_size) {
  const Checks checks("cross_entropy_forward_backward");
  check_classes(checks, logits, targets, vocab_size);
  const DType statistics = statistics_dtype(logits.dtype());
  checks.elements(loss, statistics, 1, "loss");
  checks.elements(dloss, statistics, 1, "dloss");
  checks.elements(rows, statistics, targets.numel(), "rows");
  checks.shape(dlogits, logits.dtype(), logits.shape(), "dlogits");
  if (!fused_) {
    cross_entropy_forward(loss, rows, logits, targets, vocab_size);
    cross_entropy_backward(dlogits, dloss, logits, rows, targets, vocab_size);
    return;
  }
  run("cross_entropy_forward_backward", {&dlogits, &logits, &targets},
      work::cross_entropy_forward_backward(loss, dlogits, dloss, logits, targets, vocab_size), [&] {
        kernels_->do_cross_entropy_forward_backward(loss, dlogits, rows, dloss, logits, targets, vocab_size);
      });
}

}  // namespace stagegpt
