// A launch: a kernel with its arguments, and a grid of blocks, which are divided among OS threads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "stage2_cuda/emulation/block.h"

namespace stagegpt::gpu::emulation {

// Runs all blocks. Throws KernelError if the launch is invalid, or the first error of a block.
void run_grid(Launch launch);

// The kernel's view of the device address that is argument `index` (from 1) of the launch. Throws KernelError
// if it is a host address.
void* kernel_view(const char* kernel, std::size_t index, const void* device);

// The kernel's name, such as "softmax_forward<256>", from __PRETTY_FUNCTION__ of name_of().
std::string kernel_name(std::string_view signature);

template <auto kernel>
const char* name_of() {
  static const std::string name = kernel_name(__PRETTY_FUNCTION__);
  return name.c_str();
}

template <class Kernel>
struct Parameters;
template <class... Types>
struct Parameters<void (*)(Types...)> {
  using Tuple = std::tuple<std::remove_cv_t<Types>...>;
};

// A struct that contains a pointer to device memory.
template <class T>
concept HasDevicePointer = requires(T argument) {
  argument.device_pointer();
};

template <auto kernel>
class KernelCall {
 public:
  template <class... Args>
  explicit KernelCall(Args... args) : arguments_(args...) {
    std::size_t index = 0;
    std::apply([&](auto&... argument) { (translate(argument, ++index), ...); }, arguments_);
  }

  static const char* name() { return name_of<kernel>(); }
  static void run_thread(const void* self) {
    std::apply(kernel, static_cast<const KernelCall*>(self)->arguments_);
  }
  static std::vector<PointerArgument> pointers(const void* self) {
    std::vector<PointerArgument> pointers;
    std::size_t number = 0;
    const auto list = [&](const auto& argument) {
      ++number;
      const auto add = [&](const void* pointer) {
        if (pointer != nullptr) pointers.push_back({number, pointer});
      };
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_pointer_v<Argument>) add(argument);
      if constexpr (HasDevicePointer<Argument>) add(Argument(argument).device_pointer());
    };
    std::apply([&](const auto&... argument) { (list(argument), ...); },
               static_cast<const KernelCall*>(self)->arguments_);
    return pointers;
  }

 private:
  template <class T>
  static void translate(T& argument, std::size_t index) {
    if constexpr (std::is_pointer_v<T>) argument = static_cast<T>(kernel_view(name(), index, argument));
    if constexpr (HasDevicePointer<T>) translate(argument.device_pointer(), index);
  }

  typename Parameters<decltype(kernel)>::Tuple arguments_;
};

}  // namespace stagegpt::gpu::emulation
