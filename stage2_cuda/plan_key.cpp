#include "stage2_cuda/plan_key.h"

namespace stagegpt::gpu {
namespace {

std::string_view name_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::none:
      return "none";
    case Epilogue::gelu:
      return "gelu";
    case Epilogue::gelu_backward:
      return "gelu_backward";
    case Epilogue::row_sums:
      return "row_sums";
  }
  return "?";
}

}  // namespace

std::string PlanKey::text() const {
  std::string text =
      concat(tf32 ? "tf32" : stagegpt::name_of(factors), " to ", stagegpt::name_of(result), ", m ", m, " n ",
             n, " k ", k, ", ld ", ldc, ' ', lda, transposed_a ? "T " : " ", ldb, transposed_b ? "T" : "");
  if (batch > 1) text += concat(", batch ", batch, " strides ", stride_c, ' ', stride_a, ' ', stride_b);
  text += concat(", epilogue ", name_of(epilogue), bias ? " bias" : "", accumulate ? " accumulate" : "");
  return text + concat(", aligned ", aligned_c, ' ', aligned_a, ' ', aligned_b, ' ', aligned_vector, ' ',
                       aligned_pre);
}

}  // namespace stagegpt::gpu
