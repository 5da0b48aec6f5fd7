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

void StreamBackend::compute(const CrossEntropyForward& op) {
  by_type(op.logits, [&]<class T>() {
    gpu::cross_entropy_forward<T>(stream_, floats(op.loss), floats(op.lse), op.logits.data<T>(),
                                  ids_of(op.targets), cross_entropy_size(op.logits, op.vocab_size));
  });
}

void StreamBackend::compute(const CrossEntropyBackward& op) {
  by_type(op.logits, [&]<class T>() {
    gpu::cross_entropy_backward<T>(stream_, op.dlogits.data<T>(), floats(op.dloss), op.logits.data<T>(),
                                   floats(op.lse), ids_of(op.targets),
                                   cross_entropy_size(op.logits, op.vocab_size));
  });
}

void StreamBackend::compute(const CrossEntropyForwardBackward& op) {
  by_type(op.logits, [&]<class T>() {
    gpu::cross_entropy_forward_backward<T>(stream_, floats(op.loss), op.dlogits.data<T>(), floats(op.rows),
                                           floats(op.dloss), op.logits.data<T>(), ids_of(op.targets),
                                           cross_entropy_size(op.logits, op.vocab_size),
                                           is_7_5_ ? kStagedBytesOf75 : kStagedBytes);
  });
}

void StreamBackend::compute(const CrossEntropyPartForward& op) {
  by_type(op.logits, [&]<class T>() {
    gpu::cross_entropy_part_forward<T>(stream_, floats(op.lse), floats(op.picked), op.logits.data<T>(),
                                       ids_of(op.targets), cross_entropy_size(op.logits, op.vocab_size));
  });
}

void StreamBackend::compute(const CrossEntropyOfParts& op) {
  const Tensor rows = allocate(DType::f32, op.lse.shape());
  gpu::cross_entropy_of_parts(stream_, floats(op.loss), floats(op.lse), floats(rows), floats(op.parts),
                              static_cast<int>(op.parts.shape()[0]), op.lse.numel());
}

void StreamBackend::compute(const CountCorrect& op) {
  by_type(op.logits, [&]<class T>() {
    gpu::count_correct<T>(stream_, op.count.data<std::int32_t>(), op.logits.data<T>(), ids_of(op.targets),
                          cross_entropy_size(op.logits, op.vocab_size));
  });
}

}  // namespace stagegpt::gpu
