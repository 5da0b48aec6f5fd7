#include "stage2_cuda/repeated_work.h"

#include <exception>
#include <memory>
#include <utility>

#include "common/base/error.h"
#include "stage2_cuda/device_objects.h"

namespace stagegpt::gpu {
namespace {

class RecordedGraph final : public RecordedWork {
 public:
  RecordedGraph(CachingAllocator& allocator, StreamHandle stream, const std::function<void()>& work)
      : allocator_(allocator), stream_(stream), graph_(record(work)) {}
  ~RecordedGraph() override {
    try {
      synchronize(stream_);
    } catch (const std::exception&) {
      // A destructor cannot throw; a caller that waits for results gets the error from synchronize().
    }
  }

  // Does nothing and returns false if a tensor has memory that the graph writes.
  bool launch() {
    if (!allocator_.take(noted_)) return false;
    launch_graph(graph_, stream_);
    allocator_.give_back(noted_);
    return true;
  }

 private:
  GraphHandle record(const std::function<void()>& work) {
    Capture capture(stream_);
    allocator_.start_noting();
    try {
      work();
    } catch (...) {
      allocator_.stop_noting();
      throw;
    }
    noted_ = allocator_.stop_noting();
    return capture.finish();
  }

  CachingAllocator& allocator_;
  StreamHandle stream_;
  CachingAllocator::Noted noted_;
  Graph graph_;
};

}  // namespace

void repeat(Recording& recording, CachingAllocator& allocator, StreamHandle stream,
            const std::function<void()>& work) {
  if (!std::exchange(recording.done_once, true)) return work();
  if (recording.recorded) {
    if (static_cast<RecordedGraph&>(*recording.recorded).launch()) return;
    recording.recorded.reset();
    return work();  // may free other memory, if there is too little; a recording may not
  }
  std::unique_ptr<RecordedGraph> graph;
  try {
    graph = std::make_unique<RecordedGraph>(allocator, stream, work);
  } catch (const OutOfMemory&) {
    return work();
  }
  check(graph->launch(), "repeated work: its own memory is in use");
  recording.recorded = std::move(graph);
}

}  // namespace stagegpt::gpu
