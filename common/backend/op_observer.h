// Watches the ops of a backend: Profiler times them, OpTimeline says when they run, and tests record them.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "common/backend/backend.h"

namespace stagegpt {

// A call of an op.
struct OpCall {
  const char* name;  // the op's kName, or "copy_from_host" or "copy_to_host"
  Work work;
  // The large tensors among its arguments, in their order; a gradient that is not wanted is undefined. They
  // are valid during the call only.
  std::span<const Tensor* const> operands;

  template <class Op>
  bool is() const {
    return std::string_view(name) == Op::kName;
  }
};

class OpObserver {
 public:
  // Observes `backend` until the observer is destroyed. A backend has at most one observer at a time.
  explicit OpObserver(Backend& backend);
  virtual ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  // Called for each op, after its arguments have been checked, and for each copy from and to the host. The op
  // is computed when `kernel` is called, and not computed if it is never called.
  virtual void around(const OpCall& op, const std::function<void()>& kernel) = 0;

 protected:
  Backend& backend() const { return backend_; }

 private:
  Backend& backend_;
};

}  // namespace stagegpt
