// Embeddings of tokens and positions.
#include "stage2_cuda/kernels/embedding.cuh"
#include "stage2_cuda/stream_backend.h"

namespace stagegpt::gpu {

void StreamBackend::do_ids_in_part(const Tensor& out, const Tensor& in, std::int64_t first,
                                   std::int64_t count, std::int64_t absent) {
  launch_elements<ids_in_part_kernel>(stream_, in.numel(), out.data<std::int32_t>(), ids_of(in), first, count,
                                      absent);
}

void StreamBackend::do_embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte,
                                         const Tensor& wpe) {
  const Shape& s = out.shape();
  const EmbeddingSize size{s[0], s[1], s[2], wte.shape()[0]};
  by_type(out, [&]<class T>() {
    by_type(wte, [&]<class Weight>() {
      gpu::embedding_forward<T, Weight>(stream_, out.data<T>(), ids_of(ids), wte.data<Weight>(),
                                        optional<T>(wpe), size);
    });
  });
}

void StreamBackend::do_embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout,
                                          const Tensor& ids) {
  const Shape& shape = dout.shape();
  const EmbeddingSize size{shape[0], shape[1], shape[2], dwte.wanted() ? dwte.tensor.shape()[0] : 0};
  if (dwte.mode == GradMode::overwrite) gpu::set_zero(dwte.tensor.raw(), dwte.tensor.bytes(), stream_);
  by_type(dout, [&]<class T>() {
    if (dwpe.wanted()) {
      gpu::embedding_backward_positions<T>(stream_, floats(dwpe), dwpe.accumulates(), dwpe.tensor.shape()[0],
                                           dout.data<T>(), size);
    }
    if (dwte.wanted() && size.tokens() > 0) add_token_gradients<T>(dwte.tensor, dout, ids, size);
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
