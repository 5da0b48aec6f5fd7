// Records the names of the ops that a backend runs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/backend/op_observer.h"

namespace stagegpt::test {

class OpRecorder final : public OpObserver {
 public:
  using OpObserver::OpObserver;
  void around(const OpCall& op, const std::function<void()>& kernel) override {
    ops_.emplace_back(op.name);
    kernel();
  }
  // The ops since the last call of take().
  std::vector<std::string> take() { return std::exchange(ops_, {}); }

 private:
  std::vector<std::string> ops_;
};

}  // namespace stagegpt::test
