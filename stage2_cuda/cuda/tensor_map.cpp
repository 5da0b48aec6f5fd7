#include "stage2_cuda/cuda/tensor_map.h"

#include "stage2_cuda/cuda/check.h"

namespace stagegpt::gpu {
namespace {

// A function of the driver, found at run time: so nothing links libcuda, which a machine without a GPU lacks.
auto tensor_map_encoder() {
  static const auto encoder = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    constexpr unsigned kSince = 12000;
    check_cuda(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSince,
                                                cudaEnableDefault, &found),
               "finding cuTensorMapEncodeTiled");
    if (found != cudaDriverEntryPointSuccess)
      throw std::runtime_error("CUDA: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encoder;
}

}  // namespace

TensorMap make_tensor_map(const Bf16* data, const std::array<std::int64_t, 4>& extents) {
  cuuint64_t sizes[4], strides[3];  // strides in bytes, of all dimensions but the first
  cuuint64_t stride = sizeof(Bf16);
  for (std::size_t i = 0; i < 4; ++i) {
    sizes[i] = static_cast<cuuint64_t>(extents[i]);
    stride *= sizes[i];
    if (i < 3) strides[i] = stride;
  }
  const cuuint32_t box[4] = {64, 1, 64, 1}, every[4] = {1, 1, 1, 1};
  TensorMap map;
  const CUresult result =
      tensor_map_encoder()(&map.map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<Bf16*>(data), sizes,
                           strides, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                           CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(concat("CUDA: cuTensorMapEncodeTiled: error ", static_cast<int>(result)));
  return map;
}

}  // namespace stagegpt::gpu
