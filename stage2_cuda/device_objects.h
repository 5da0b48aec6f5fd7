// Owners (RAII) of a stream and of an event.
#pragma once

#include "stage2_cuda/runtime.h"

namespace stagegpt::gpu {

class Stream {
 public:
  Stream() : handle_(make_stream()) {}
  ~Stream() { destroy_stream(handle_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator StreamHandle() const { return handle_; }

 private:
  StreamHandle handle_;
};

class Event {
 public:
  explicit Event(EventKind kind = EventKind::order) : handle_(make_event(kind)) {}
  ~Event() { destroy_event(handle_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator EventHandle() const { return handle_; }

 private:
  EventHandle handle_;
};

}  // namespace stagegpt::gpu
