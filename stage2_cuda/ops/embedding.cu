// Embeddings of tokens and positions.
#include "stage2_cuda/kernels/embedding.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {

void StreamBackend::compute(const IdsInPart& op) {
  launch_elements<ids_in_part_kernel>(stream_, op.in.numel(), op.out.data<std::int32_t>(), ids_of(op.in),
                                      op.first, op.count, op.absent);
}

void StreamBackend::compute(const EmbeddingForward& op) {
  const Shape& s = op.out.shape();
  const EmbeddingSize size{s[0], s[1], s[2], op.wte.shape()[0]};
  by_type(op.out, [&]<class T>() {
    by_type(op.wte, [&]<class Weight>() {
      gpu::embedding_forward<T, Weight>(stream_, op.out.data<T>(), ids_of(op.ids), op.wte.data<Weight>(),
                                        optional<T>(op.wpe), optional<std::int32_t>(op.position), size);
    });
  });
}

void StreamBackend::compute(const EmbeddingBackward& op) {
  const Shape& shape = op.dout.shape();
  const EmbeddingSize size{shape[0], shape[1], shape[2], op.dwte.wanted() ? op.dwte.tensor.shape()[0] : 0};
  if (op.dwte.mode == GradMode::overwrite)
    gpu::set_zero(op.dwte.tensor.raw(), op.dwte.tensor.bytes(), stream_);
  by_type(op.dout, [&]<class T>() {
    if (op.dwpe.wanted()) {
      gpu::embedding_backward_positions<T>(stream_, floats(op.dwpe), op.dwpe.accumulates(),
                                           op.dwpe.tensor.shape()[0], op.dout.data<T>(), size);
    }
    if (op.dwte.wanted() && size.tokens() > 0) add_token_gradients<T>(op.dwte.tensor, op.dout, op.ids, size);
  });
}

template <class T>
void StreamBackend::add_token_gradients(const Tensor& dwte, const Tensor& dout, const Tensor& ids,
                                        EmbeddingSize size) {
  const std::int64_t n = size.tokens();
  const Tensor scratch = allocate(DType::i32, {SortTiles(n).scratch_size(n)}),
               parts = allocate(DType::f32, {size.parts_size()});
  const std::int32_t* order =
      sort_tokens(stream_, ids_of(ids), n, dwte.shape()[0] + 1, scratch.data<std::int32_t>());
  embedding_backward_tokens<T>(stream_, floats(dwte), dout.data<T>(), ids_of(ids), order, floats(parts),
                               size);
}

}  // namespace stagegpt::gpu
