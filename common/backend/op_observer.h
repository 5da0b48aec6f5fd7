// Watches the ops of a backend: Profiler times them, and tests record them.
#pragma once

#include <functional>

#include "common/backend/backend.h"
#include "common/backend/work.h"

namespace stagegpt {

class OpObserver {
 public:
  // Observes `backend` until the observer is destroyed. A backend has at most one observer at a time.
  explicit OpObserver(Backend& backend);
  virtual ~OpObserver();
  OpObserver(const OpObserver&) = delete;
  OpObserver& operator=(const OpObserver&) = delete;

  // Called for each op, after its arguments have been checked, and for each copy from and to the host. The op
  // is computed when `kernel` is called, and not computed if it is never called.
  virtual void around(const char* op, const Work& work, const std::function<void()>& kernel) = 0;

 protected:
  Backend& backend() const { return backend_; }

 private:
  Backend& backend_;
};

}  // namespace stagegpt
