#include "common/backend/op_observer.h"

namespace stagegpt {

OpObserver::OpObserver(Backend& backend) : backend_(backend) {
  check(backend.observer_ == nullptr, "backend: has an observer already");
  backend.observer_ = this;
}

OpObserver::~OpObserver() { backend_.observer_ = nullptr; }

}  // namespace stagegpt
