// Owners (RAII) of a stream, of an event, of a capture and of a graph.
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

// A graph of the work that a stream is given until finish().
class Capture {
 public:
  explicit Capture(StreamHandle stream) : stream_(stream) { begin_capture(stream); }
  ~Capture() {
    if (!finished_) abandon_capture(stream_);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  GraphHandle finish() {
    finished_ = true;
    return end_capture(stream_);
  }

 private:
  StreamHandle stream_;
  bool finished_ = false;
};

class Graph {
 public:
  explicit Graph(GraphHandle graph) : handle_(graph) {}
  ~Graph() { destroy_graph(handle_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  operator GraphHandle() const { return handle_; }

 private:
  GraphHandle handle_;
};

}  // namespace stagegpt::gpu
