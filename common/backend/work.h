// The work of an op: how many floating-point operations it does and how many bytes it moves. Its measured
// time is compared with them. There is one function for each op, with the op's arguments.
//
// Every +, -, ·, ÷, max and function call (exp, tanh, √) counts as one operation, so the product of an (N,K)
// and a (K,M) matrix has 2NKM. Bytes are the minimum: every operand is read once and every result is written
// once. A gradient that is accumulated is read and written; one that is skipped is neither.
#pragma once

#include <span>

#include "common/backend/op_types.h"

namespace stagegpt {

struct Work {
  double flops = 0;
  double bytes = 0;
};

namespace work {

Work fill(const Tensor& out);
Work copy(const Tensor& out, const Tensor& in);
// A copy between a tensor and the host.
Work transfer(const Tensor& tensor);
Work add(const Tensor& out, const Tensor& a, const Tensor& b);
Work cast(const Tensor& out, const Tensor& in);
Work embedding_forward(const Tensor& out, const Tensor& ids, const Tensor& wte, const Tensor& wpe);
Work embedding_backward(const Grad& dwte, const Grad& dwpe, const Tensor& dout, const Tensor& ids);
Work linear_forward(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias);
Work linear_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout, const Tensor& x,
                     const Tensor& w);
Work linear_activation_forward(const Tensor& out, const Tensor& pre, const Tensor& x, const Tensor& w,
                               const Tensor& bias, Activation activation);
Work activation_linear_backward(const Tensor& dpre, const Grad& dw, const Grad& dbias, const Tensor& dout,
                                const Tensor& x, const Tensor& pre, const Tensor& w, Activation activation);
Work activation_forward(const Tensor& out, const Tensor& x, Activation activation);
Work activation_backward(const Grad& dx, const Tensor& dout, const Tensor& x, Activation activation);
Work layernorm_forward(const Tensor& out, const Tensor& mean, const Tensor& rstd, const Tensor& x,
                       const Tensor& w, const Tensor& bias);
Work residual_layernorm_forward(const Tensor& sum, const Tensor& out, const Tensor& mean, const Tensor& rstd,
                                const Tensor& x, const Tensor& residual, const Tensor& w, const Tensor& bias);
Work layernorm_backward(const Grad& dx, const Grad& dw, const Grad& dbias, const Tensor& dout,
                        const Tensor& x, const Tensor& w, const Tensor& mean, const Tensor& rstd);
Work attention_forward(const Tensor& out, const Tensor& lse, const Tensor& qkv);
Work attention_backward(const Grad& dqkv, const Tensor& dout, const Tensor& out, const Tensor& lse,
                        const Tensor& qkv);
Work cached_attention_forward(const Tensor& out, const Tensor& cache, const Tensor& qkv, int n_head,
                              std::int64_t first);
Work dropout_forward(const Tensor& out, const Tensor& x);
Work dropout_backward(const Grad& dx, const Tensor& dout);
Work cross_entropy_forward(const Tensor& loss, const Tensor& lse, const Tensor& logits, const Tensor& targets,
                           std::int64_t vocab_size);
Work cross_entropy_backward(const Tensor& dlogits, const Tensor& dloss, const Tensor& logits,
                            const Tensor& lse, const Tensor& targets, std::int64_t vocab_size);
Work cross_entropy_forward_backward(const Tensor& loss, const Tensor& dlogits, const Tensor& dloss,
                                    const Tensor& logits, const Tensor& targets, std::int64_t vocab_size);
Work cross_entropy_part_forward(const Tensor& lse, const Tensor& picked, const Tensor& logits,
                                const Tensor& targets, std::int64_t vocab_size);
Work cross_entropy_of_parts(const Tensor& loss, const Tensor& lse, const Tensor& parts);
Work count_correct(const Tensor& count, const Tensor& logits, const Tensor& targets, std::int64_t vocab_size);
Work squared_norm(const Tensor& out, const Tensor& x);
Work sum(const Tensor& out, const Tensor& x);
Work adamw(const Tensor& weights, const Tensor& shadow, std::span<const DecayRange> ranges);

}  // namespace work
}  // namespace stagegpt
