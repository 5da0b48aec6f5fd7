// Cross-entropy of whole logits and of parts, and the tokens that are predicted.
#include "stage2_cuda/kernels/cross_entropy.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {
namespace {

CrossEntropySize cross_entropy_size(const Tensor& logits, std::int64_t vocab_size) {
  const std::int64_t padded = logits.shape()[-1];
  return {logits.numel() / padded, static_cast<int>(vocab_size), static_cast<int>(padded)};
}

}  // namespace

void StreamBackend::do_cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits,
                                             const Tensor& targets, std::int64_t vocab_size) {
  by_type(logits, [&]<class T>() {
    gpu::cross_entropy_forward<T>(stream_, floats(loss), floats(lse), logits.data<T>(), ids_of(targets),
                                  cross_entropy_size(logits, vocab_size));
  });
}

void StreamBackend::do_cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss,
                                              const Tensor& logits, const Tensor& lse, const Tensor& targets,
                                              std::int64_t vocab_size) {
  by_type(logits, [&]<class T>() {
    gpu::cross_entropy_backward<T>(stream_, dlogits.data<T>(), floats(dloss), logits.data<T>(), floats(lse),
                                   ids_of(targets), cross_entropy_size(logits, vocab_size));
  });
}

void StreamBackend::do_cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits,
                                                      const Tensor& rows, const Tensor& dloss,
                                                      const Tensor& logits, const Tensor& targets,
                                                      std::int64_t vocab_size) {
  by_type(logits, [&]<class T>() {
    gpu::cross_entropy_forward_backward<T>(stream_, floats(loss), dlogits.data<T>(), floats(rows),
                                           floats(dloss), logits.data<T>(), ids_of(targets),
                                           cross_entropy_size(logits, vocab_size));
  });
}

void StreamBackend::do_cross_entropy_part_forward(const Tensor& lse, const Tensor& picked,
                                                  const Tensor& logits, const Tensor& targets,
                                                  std::int64_t vocab_size) {
  by_type(logits, [&]<class T>() {
    gpu::cross_entropy_part_forward<T>(stream_, floats(lse), floats(picked), logits.data<T>(),
                                       ids_of(targets), cross_entropy_size(logits, vocab_size));
  });
}

void StreamBackend::do_cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts) {
  const Tensor rows = allocate(DType::f32, lse.shape());
  gpu::cross_entropy_of_parts(stream_, floats(loss), floats(lse), floats(rows), floats(parts),
                              static_cast<int>(parts.shape()[0]), lse.numel());
}

void StreamBackend::do_count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets,
                                     std::int64_t vocab_size) {
  by_type(logits, [&]<class T>() {
    gpu::count_correct<T>(stream_, count.data<std::int32_t>(), logits.data<T>(), ids_of(targets),
                          cross_entropy_size(logits, vocab_size));
  });
}

}  // namespace stagegpt::gpu
