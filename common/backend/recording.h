// Work that is done again and again, with the same ops on the same tensors: see Backend::repeat().
#pragma once

#include <memory>

namespace stagegpt {

// What a backend has recorded of it.
struct RecordedWork {
  virtual ~RecordedWork() = default;
};

// One piece of such work, and how often it was done: not yet, once, or recorded. May not outlive the backend.
struct Recording {
  bool done_once = false;
  std::unique_ptr<RecordedWork> recorded;
};

}  // namespace stagegpt
