#pragma once

#include "common/autograd/tape.h"

namespace stagegpt {

// Mean negative log-likelihood (1) of the targets i32 (B,T) under softmax over the first vocab_size columns
// of logits (B,T,Vp), in nats.
Var cross_entropy(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size);

// The same as the loss of the tape: nothing but Tape::backward() may use it. On a training tape, the gradient
// of the logits is computed together with the loss. It overwrites the logits if the caller moves the only
// handle to them.
Var cross_entropy_loss(Tape& tape, Var logits, const Tensor& targets, std::int64_t vocab_size);

}  // namespace stagegpt
