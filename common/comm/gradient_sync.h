// Gradient synchronisation: how ranks combine their gradients. The trainer calls ready() during backward, so
// that an implementation can overlap communication with backward.
#pragma once

#include "common/model/parameters.h"

namespace stagegpt {

// The communication of one step on this rank.
struct CommunicationReport {
  std::int64_t bytes_reduced = 0;  // bytes of gradients passed to reductions
  double seconds_under_way = 0;    // from the start of the first reduction to the end of the last one
};

struct SyncTraits {
  // Calls the communicator, even with one rank: ready() and sum_squared_norms() cannot be part of repeated
  // work (Backend::repeat()).
  bool communicates = true;
  // sum_squared_norms() is given the norms of the backend's blocks in place of those of parts
  // (SquaredNorm).
  bool norm_in_blocks = false;
};

class GradientSync {
 public:
  explicit GradientSync(SyncTraits traits = {}) : traits_(traits) {}
  virtual ~GradientSync() = default;
  const SyncTraits& traits() const { return traits_; }
  // The parts of an arena that this rank updates; as many as other ranks have.
  virtual ArenaParts owned(std::int64_t arena_size) const { return {{0, arena_size}}; }
  // The gradient of parameter i is complete on this rank. Called once per step for each parameter that the
  // model uses, in any order. The gradients of unused parameters are zero when finish() is called.
  virtual void ready(Parameters& parameters, int i) = 0;
  // Completes the reduction: afterwards the gradients of the owned parts are summed over all ranks.
  virtual void finish(Parameters& parameters) = 0;
  // Writes the squared norm of all gradients to `sum` f64 (1). `parts` f64 (P) has those of the owned parts;
  // if it is only one, `sum` is `parts`. Or those of blocks. Every rank gets the same bits, so that all ranks
  // decide equally whether to clip or skip. The host does not wait for the backend, unless the communicator
  // does.
  virtual void sum_squared_norms(const Tensor& sum, const Tensor& parts) = 0;
  // Ends a step: afterwards every rank has all updated weights as ops read them: Parameters::var().
  virtual void share_weights(Parameters& parameters) = 0;
  // Afterwards Parameters::weights() are up to date on every rank. A collective call.
  virtual void gather_weights(Parameters&) {}
  // The report of the step that has ended; called once per step. Waits for the backend's work.
  virtual CommunicationReport take_report() = 0;

 private:
  SyncTraits traits_;
};

// The implementation for a single process: does nothing.
class NoGradientSync : public GradientSync {
 public:
  explicit NoGradientSync(SyncTraits traits = {.communicates = false}) : GradientSync(traits) {}
  void ready(Parameters&, int) override {}
  void finish(Parameters&) override {}
  void sum_squared_norms(const Tensor&, const Tensor&) override {}
  void share_weights(Parameters&) override {}
  CommunicationReport take_report() override { return {}; }
};

}  // namespace stagegpt
