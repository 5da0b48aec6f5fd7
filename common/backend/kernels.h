// The list of all ops. A backend that lacks a kernel for one of them does not compile.
#pragma once

namespace stagegpt {

// The arguments have been checked by Backend::run(). `const struct Fill&` also declares Fill: this file
// includes no op. Ops with "part" in their names are for a vocabulary that ranks divide.
class Kernels {
 public:
  // common/backend/ops/
  virtual void compute(const struct Fill& op) = 0;
  virtual void compute(const struct Copy& op) = 0;
  virtual void compute(const struct Add& op) = 0;
  virtual void compute(const struct Cast& op) = 0;
  virtual void compute(const struct QuantiseRows& op) = 0;
  virtual void compute(const struct IdsInPart& op) = 0;
  virtual void compute(const struct SquaredNorm& op) = 0;
  virtual void compute(const struct AddNormBlocks& op) = 0;
  virtual void compute(const struct Sum& op) = 0;
  virtual void compute(const struct LargestLogits& op) = 0;
  virtual void compute(const struct DrawTokens& op) = 0;
  virtual void compute(const struct AdamWUpdate& op) = 0;
  virtual void compute(const struct ActivationForward& op) = 0;
  virtual void compute(const struct ActivationBackward& op) = 0;
  // common/autograd/ops/
  virtual void compute(const struct EmbeddingForward& op) = 0;
  virtual void compute(const struct EmbeddingBackward& op) = 0;
  virtual void compute(const struct LinearForward& op) = 0;
  virtual void compute(const struct LinearBackward& op) = 0;
  virtual void compute(const struct LinearActivationForward& op) = 0;
  virtual void compute(const struct ActivationLinearBackward& op) = 0;
  virtual void compute(const struct LayernormForward& op) = 0;
  virtual void compute(const struct LayernormBackward& op) = 0;
  virtual void compute(const struct ResidualLayernormForward& op) = 0;
  virtual void compute(const struct AttentionForward& op) = 0;
  virtual void compute(const struct AttentionBackward& op) = 0;
  virtual void compute(const struct CachedAttentionForward& op) = 0;
  virtual void compute(const struct NormLinearForward& op) = 0;
  virtual void compute(const struct DropoutForward& op) = 0;
  virtual void compute(const struct DropoutBackward& op) = 0;
  virtual void compute(const struct CrossEntropyForward& op) = 0;
  virtual void compute(const struct CrossEntropyBackward& op) = 0;
  virtual void compute(const struct CrossEntropyForwardBackward& op) = 0;
  virtual void compute(const struct CrossEntropyPartForward& op) = 0;
  virtual void compute(const struct CrossEntropyOfParts& op) = 0;
  virtual void compute(const struct CountCorrect& op) = 0;

 protected:
  ~Kernels() = default;
};

}  // namespace stagegpt
