// What a forward and backward pass reads beside the parameters. It is always at the same place in the
// backend's memory, so that a pass can be repeated.
#pragma once

#include <algorithm>
#include <vector>

#include "common/backend/backend.h"
#include "common/data/data_loader.h"

namespace stagegpt {

class PassInputs {
 public:
  // For B sequences of T tokens.
  PassInputs(Backend& backend, std::int64_t B, std::int64_t T)
      : backend_(backend),
        all_(backend.allocate(DType::i32, {2 * B * T + 2})),
        ids_(all_.slice(0, {B, T})),
        targets_(all_.slice(B * T, {B, T})),
        position_(all_.slice(2 * B * T, {2})) {}

  // Sends the inputs of the next pass, while the backend computes the present one.
  void send_ahead(const Batch& batch, const PassPosition& position) {
    host_.assign(batch.ids.begin(), batch.ids.end());
    host_.insert(host_.end(), batch.targets.begin(), batch.targets.end());
    host_.insert(host_.end(), {position.step, position.first_sequence});
    backend_.send_ahead(std::as_bytes(std::span(host_)));
  }
  // From now on, the tensors contain what was sent.
  void receive() { backend_.receive(all_); }

  const Tensor& ids() const { return ids_; }            // i32 (B,T)
  const Tensor& targets() const { return targets_; }    // i32 (B,T)
  const Tensor& position() const { return position_; }  // PassPosition, i32 (2)

 private:
  Backend& backend_;
  std::vector<std::int32_t> host_;
  Tensor all_, ids_, targets_, position_;
};

}  // namespace stagegpt
