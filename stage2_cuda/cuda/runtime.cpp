// runtime.h on the CUDA runtime.
#include "stage2_cuda/runtime.h"

#include <cuda_runtime.h>

#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "common/tensor/caching_allocator.h"
#include "stage2_cuda/cuda/check.h"
#include "stage2_cuda/device_counts.h"

namespace stagegpt::gpu {
namespace {

// What to do without a GPU. compare_stages recognises it (tools/compare/stage_programs.cpp).
std::string or_emulated() {
  return concat("or use ", program_invocation_short_name,
                "_emulated, which runs the same kernels on the CPU");
}

// CUDA's version number 13010 as "13.1".
std::string version_text(int version) { return concat(version / 1000, '.', version % 1000 / 10); }

[[noreturn]] void refuse_driver() {
  int driver = 0, toolkit = 0;
  check_cuda(cudaDriverGetVersion(&driver), "querying the driver version");
  check_cuda(cudaRuntimeGetVersion(&toolkit), "querying the runtime version");
  if (driver == 0) {
    user_error("no NVIDIA driver was found on this machine; install it, ", or_emulated());
  }
  user_error("the NVIDIA driver supports CUDA up to ", version_text(driver),
             ", but this program was built with CUDA ", version_text(toolkit),
             "; install a newer driver or build with an older toolkit, ", or_emulated());
}

// The device's UUID, as hexadecimal digits.
std::string id_of(const cudaDeviceProp& properties) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (const char byte : properties.uuid.bytes) {
    const auto bits = static_cast<unsigned char>(byte);
    id += {kDigits[bits >> 4], kDigits[bits & 15]};
  }
  return id;
}

// Code compiled for a device runs on newer devices, but not on older ones.
void require_compiled_for(const DeviceInfo& device) {
  constexpr int kOldest = STAGEGPT_OLDEST_ARCHITECTURE;
  if (10 * device.major + device.minor >= kOldest) return;
  user_error(device.name, " has compute capability ", device.major, '.', device.minor,
             ", but this program was compiled for ", kOldest / 10, '.', kOldest % 10, " and newer",
             "; build with -DCMAKE_CUDA_ARCHITECTURES=", device.major, device.minor, "-real, ",
             or_emulated());
}

// Whether a call has returned this error, which is then cleared: otherwise the next launch would report it.
bool is_cleared(cudaError_t code, cudaError_t error) {
  if (code != error) return false;
  cudaGetLastError();
  return true;
}

cudaStream_t stream_of(StreamHandle stream) { return static_cast<cudaStream_t>(stream); }
cudaEvent_t event_of(EventHandle event) { return static_cast<cudaEvent_t>(event); }

struct ExecutableGraph {
  cudaGraphExec_t executable = nullptr;
  DeviceWork work;  // captured
};
ExecutableGraph& graph_of(GraphHandle graph) { return *static_cast<ExecutableGraph*>(graph); }

// What device_counts was when this thread's capture began.
thread_local DeviceWork before_capture;

// Allows this thread to call what could disturb a capture. An allocation does not, because its address is
// known at once.
class RelaxedCapture {
 public:
  RelaxedCapture() { exchange(); }
  ~RelaxedCapture() { exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  void exchange() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&other_)); }

  cudaStreamCaptureMode other_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace

int device_count() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorInsufficientDriver) refuse_driver();
  if (code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
    user_error("no CUDA device was found; check nvidia-smi and CUDA_VISIBLE_DEVICES, ", or_emulated());
  }
  check_cuda(code, "counting devices");
  return count;
}

DeviceInfo open_device(int index) {
  const int count = device_count();
  if (index < 0 || index >= count) {
    user_error("--device: ", index, ": this machine has ", count, count == 1 ? " GPU" : " GPUs",
               ", numbered from 0");
  }
  cudaDeviceProp properties;
  check_cuda(cudaGetDeviceProperties(&properties, index), "querying the device properties");
  const DeviceInfo device{.name = properties.name,
                          .id = id_of(properties),
                          .major = properties.major,
                          .minor = properties.minor,
                          .multiprocessors = properties.multiProcessorCount,
                          .memory_bytes = properties.totalGlobalMem};
  require_compiled_for(device);
  check_cuda(cudaSetDevice(index), "opening the device");
  return device;
}

namespace {

int attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check_cuda(cudaGetDevice(&device), "querying the device");
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), "querying an attribute of the device");
  return value;
}

}  // namespace

int compute_capability() {
  return 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
}
int multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }

// ---- Memory ----

void* allocate(std::size_t bytes) {
  ++device_counts.allocations;
  void* block = nullptr;
  const RelaxedCapture relaxed;
  const cudaError_t code = cudaMalloc(&block, bytes);
  if (is_cleared(code, cudaErrorMemoryAllocation)) return nullptr;
  check_cuda(code, "allocating memory");
  return block;
}

// An error here comes from earlier asynchronous work; synchronize() reports it.
void deallocate(void* block) noexcept {
  if (cudaFree(block) != cudaSuccess) cudaGetLastError();  // clears the error
}

MemoryInfo memory_info() {
  MemoryInfo info;
  const RelaxedCapture relaxed;
  check_cuda(cudaMemGetInfo(&info.free, &info.total), "querying free memory");
  return info;
}

void* host_view(void*) noexcept { return nullptr; }

void* allocate_pinned(std::size_t bytes) {
  void* block = nullptr;
  const cudaError_t code = cudaMallocHost(&block, bytes);
  if (is_cleared(code, cudaErrorMemoryAllocation)) return nullptr;
  check_cuda(code, "allocating pinned memory");
  return block;
}

void deallocate_pinned(void* block) noexcept { static_cast<void>(cudaFreeHost(block)); }

// ---- Streams ----

StreamHandle make_stream() {
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "creating a stream");
  return stream;
}

void destroy_stream(StreamHandle stream) noexcept { static_cast<void>(cudaStreamDestroy(stream_of(stream))); }

void synchronize(StreamHandle stream) {
  ++device_counts.waits;
  check_cuda(cudaStreamSynchronize(stream_of(stream)), "synchronizing a stream");
}

void copy_to_device(void* out, const void* in, std::size_t bytes, StreamHandle stream) {
  ++device_counts.copies;
  check_cuda(cudaMemcpyAsync(out, in, bytes, cudaMemcpyHostToDevice, stream_of(stream)),
             "copying to the device");
}

void copy_to_host(void* out, const void* in, std::size_t bytes, StreamHandle stream) {
  ++device_counts.copies;
  check_cuda(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToHost, stream_of(stream)),
             "copying from the device");
}

void copy_on_device(void* out, const void* in, std::size_t bytes, StreamHandle stream) {
  ++device_counts.copies;
  check_cuda(cudaMemcpyAsync(out, in, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)),
             "copying on the device");
}

void set_zero(void* out, std::size_t bytes, StreamHandle stream) {
  ++device_counts.fills;
  check_cuda(cudaMemsetAsync(out, 0, bytes, stream_of(stream)), "setting memory to zero");
}

// ---- Events ----

EventHandle make_event(EventKind kind) {
  cudaEvent_t event = nullptr;
  const unsigned flags = kind == EventKind::time ? cudaEventDefault : cudaEventDisableTiming;
  check_cuda(cudaEventCreateWithFlags(&event, flags), "creating an event");
  return event;
}

void destroy_event(EventHandle event) noexcept { static_cast<void>(cudaEventDestroy(event_of(event))); }

void record(EventHandle event, StreamHandle stream) {
  check_cuda(cudaEventRecord(event_of(event), stream_of(stream)), "recording an event");
}

void wait_for(EventHandle event) {
  ++device_counts.waits;
  check_cuda(cudaEventSynchronize(event_of(event)), "waiting for an event");
}

void wait_for(StreamHandle stream, EventHandle event) {
  check_cuda(cudaStreamWaitEvent(stream_of(stream), event_of(event), 0), "making a stream wait for an event");
}

bool is_done(EventHandle event) {
  const cudaError_t code = cudaEventQuery(event_of(event));
  if (is_cleared(code, cudaErrorNotReady)) return false;
  check_cuda(code, "querying an event");
  return true;
}

float milliseconds_between(EventHandle begin, EventHandle end) {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, event_of(begin), event_of(end)),
             "measuring the time between events");
  return milliseconds;
}

// ---- Graphs ----

// Thread-local: other threads of this process, such as NCCL's, may do what they want meanwhile.
void begin_capture(StreamHandle stream) {
  before_capture = device_counts.work();
  check_cuda(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
             "beginning to capture a graph");
}

GraphHandle end_capture(StreamHandle stream) {
  auto graph = std::make_unique<ExecutableGraph>();
  graph->work = device_counts.work() - before_capture;
  device_counts.take_back(graph->work);
  cudaGraph_t captured = nullptr;
  check_cuda(cudaStreamEndCapture(stream_of(stream), &captured), "capturing a graph");
  const cudaError_t code = cudaGraphInstantiate(&graph->executable, captured, 0);
  static_cast<void>(cudaGraphDestroy(captured));
  if (is_cleared(code, cudaErrorMemoryAllocation)) throw OutOfMemory("no memory is left for a graph");
  check_cuda(code, "instantiating a graph");
  return graph.release();
}

void abandon_capture(StreamHandle stream) noexcept {
  device_counts.take_back(device_counts.work() - before_capture);
  cudaGraph_t captured = nullptr;
  if (cudaStreamEndCapture(stream_of(stream), &captured) != cudaSuccess)
    cudaGetLastError();  // clears the error
  if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
}

void launch_graph(GraphHandle graph, StreamHandle stream) {
  const ExecutableGraph& launched = graph_of(graph);
  device_counts.launched_graph(launched.work);
  check_cuda(cudaGraphLaunch(launched.executable, stream_of(stream)), "launching a graph");
}

void destroy_graph(GraphHandle graph) noexcept {
  static_cast<void>(cudaGraphExecDestroy(graph_of(graph).executable));
  delete &graph_of(graph);
}

}  // namespace stagegpt::gpu
