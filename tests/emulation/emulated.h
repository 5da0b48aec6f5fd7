// Helpers for tests of the emulator: arrays in device memory, all thread orders, the error of a launch.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "stage2_cuda/emulation/settings.h"
#include "stage2_cuda/launch.h"

namespace stagegpt::test {

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<T>& values) : size_(values.size()) {
    data_ = static_cast<T*>(gpu::allocate(size_ * sizeof(T)));
    gpu::copy_to_device(data_, values.data(), size_ * sizeof(T), nullptr);
  }
  explicit DeviceArray(std::size_t size) : DeviceArray(std::vector<T>(size)) {}
  ~DeviceArray() { gpu::deallocate(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values() const {
    std::vector<T> values(size_);
    gpu::copy_to_host(values.data(), data_, size_ * sizeof(T), nullptr);
    return values;
  }

 private:
  std::size_t size_;
  T* data_;
};

// Small whole numbers, exact in bf16; so are all sums of 64 products of two.
inline std::vector<Bf16> small_numbers(std::size_t count, unsigned step) {
  std::vector<Bf16> values;
  for (unsigned i = 0; i < count; ++i)
    values.push_back({bf16_of_float(static_cast<float>(i * step % 13) - 6)});
  return values;
}

// The emulated device has this compute capability and number of OS threads, until the object's lifetime ends.
class EmulatedDevice {
 public:
  explicit EmulatedDevice(int capability, int threads = gpu::emulation::threads()) {
    gpu::emulation::set_compute_capability(capability);
    gpu::emulation::set_threads(threads);
  }
  ~EmulatedDevice() {
    gpu::emulation::set_compute_capability(capability_);
    gpu::emulation::set_threads(threads_);
  }
  EmulatedDevice(const EmulatedDevice&) = delete;
  EmulatedDevice& operator=(const EmulatedDevice&) = delete;

 private:
  int capability_ = gpu::emulation::compute_capability(), threads_ = gpu::emulation::threads();
};

// Runs each test in the thread order of its parameter, and restores the default order afterwards.
class InEveryOrder : public testing::TestWithParam<gpu::emulation::ThreadOrder> {
 protected:
  void SetUp() override { gpu::emulation::set_thread_order(GetParam()); }
  void TearDown() override { gpu::emulation::set_thread_order({}); }
};

// The same on compute capability 9.0.
class InEveryOrderOn90 : public InEveryOrder {
  const EmulatedDevice device_{90};
};

inline std::string order_name(const testing::TestParamInfo<gpu::emulation::ThreadOrder>& info) {
  switch (info.param.order) {
    case gpu::emulation::Order::forward:
      return "forward";
    case gpu::emulation::Order::reverse:
      return "reverse";
    case gpu::emulation::Order::random:
      break;
  }
  return concat("random_", info.param.seed);
}

using gpu::emulation::Order;
using gpu::emulation::ThreadOrder;
inline const auto kOrders = testing::Values(ThreadOrder{Order::forward, 0}, ThreadOrder{Order::reverse, 0},
                                            ThreadOrder{Order::random, 1}, ThreadOrder{Order::random, 2});

// For EXPECT_EXIT: prints an error and exits with 2, or with 0 if it is empty.
[[noreturn]] inline void exit_with(const std::string& error) {
  std::fprintf(stderr, "%s\n", error.c_str());
  std::exit(error.empty() ? 0 : 2);
}

// The message of the KernelError that run() throws; "" if it throws none.
template <class Run>
std::string error_of(const Run& run) {
  try {
    run();
  } catch (const gpu::KernelError& error) {
    return error.what();
  }
  return "";
}

// Expects that run() throws a KernelError whose message contains each of the parts.
template <class Run>
void expect_error(const std::vector<std::string>& parts, const Run& run) {
  const std::string message = error_of(run);
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in \"" << message << '"';
  }
}

// Expects that run() throws a KernelError whose message contains one of the parts: the thread order decides
// which of several errors is met first.
template <class Run>
void expect_one_error(const std::vector<std::string>& parts, const Run& run) {
  const std::string message = error_of(run);
  EXPECT_TRUE(std::ranges::any_of(parts, [&](const std::string& part) {
    return message.find(part) != std::string::npos;
  })) << message;
}

}  // namespace stagegpt::test
