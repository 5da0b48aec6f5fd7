#include "stage2_cuda/emulation/settings.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "common/base/error.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr const char* kOrderVariable = "STAGEGPT_EMULATOR_ORDER";
constexpr const char* kStreamsVariable = "STAGEGPT_EMULATOR_STREAMS";
constexpr const char* kCapabilityVariable = "STAGEGPT_EMULATOR_CAPABILITY";
constexpr const char* kDevicesVariable = "STAGEGPT_EMULATOR_DEVICES";

[[noreturn]] void malformed_order(std::string_view text) {
  user_error(kOrderVariable, ": expected forward, reverse, random or random:SEED, got \"", text, '"');
}

ThreadOrder order_from_environment() {
  const char* value = std::getenv(kOrderVariable);
  if (value == nullptr) return {};
  const std::string_view text = value;
  if (text == "forward") return {Order::forward, 0};
  if (text == "reverse") return {Order::reverse, 0};
  if (text == "random") return {Order::random, 0};
  constexpr std::string_view kSeeded = "random:";
  if (!text.starts_with(kSeeded)) malformed_order(text);
  std::uint64_t seed = 0;
  const auto [end, error] = std::from_chars(text.data() + kSeeded.size(), text.data() + text.size(), seed);
  if (error != std::errc() || end != text.data() + text.size()) malformed_order(text);
  return {Order::random, seed};
}

StreamTime stream_time_from_environment() {
  const char* value = std::getenv(kStreamsVariable);
  const std::string_view text = value == nullptr ? "at_once" : value;
  if (text == "at_once") return StreamTime::at_once;
  if (text == "late") return StreamTime::late;
  if (text == "ahead") return StreamTime::ahead;
  user_error(kStreamsVariable, ": expected at_once, late or ahead, got \"", text, '"');
}

int capability_from_environment() {
  const char* value = std::getenv(kCapabilityVariable);
  const std::string_view text = value == nullptr ? "8.0" : value;
  if (text == "7.5") return 75;
  if (text == "8.0") return 80;
  if (text == "9.0") return 90;
  user_error(kCapabilityVariable, ": expected 7.5, 8.0 or 9.0, got \"", text, '"');
}

struct Settings {
  std::mutex mutex;
  std::atomic<StreamTime> stream_time = stream_time_from_environment();
  ThreadOrder order = order_from_environment();
  std::atomic<int> capability = capability_from_environment();
  std::atomic<std::uint64_t> launches = 0;
  std::atomic<int> threads = std::min(omp_get_max_threads(), kMostThreads);
};

Settings& settings() {
  static Settings settings;
  return settings;
}

}  // namespace

ThreadOrder thread_order() {
  const std::lock_guard lock(settings().mutex);
  return settings().order;
}

void set_thread_order(ThreadOrder order) {
  const std::lock_guard lock(settings().mutex);
  settings().order = order;
  settings().launches = 0;
}

std::uint64_t next_launch() { return settings().launches++; }

int threads() { return settings().threads; }

void set_threads(int count) {
  check(count >= 1 && count <= kMostThreads, "the emulator takes 1 to ", kMostThreads, " OS threads, got ",
        count);
  settings().threads = count;
}

StreamTime stream_time() { return settings().stream_time; }
void set_stream_time(StreamTime time) { settings().stream_time = time; }

int compute_capability() { return settings().capability; }
void set_compute_capability(int capability) { settings().capability = capability; }

int device_count() {
  constexpr int kUsual = 8, kMost = 1024;
  const char* value = std::getenv(kDevicesVariable);
  if (value == nullptr) return kUsual;
  const std::string_view text = value;
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 || count > kMost) {
    user_error(kDevicesVariable, ": expected a number from 1 to ", kMost, ", got \"", text, '"');
  }
  return count;
}

}  // namespace stagegpt::gpu::emulation
