#include "common/backend/backend.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "common/backend/op_observer.h"
#include "common/backend/op_work.h"
#include "common/backend/ops/elementwise.h"
#include "common/tensor/half_floats.h"

namespace stagegpt {
namespace {

// The work of a copy between the tensor and the host.
Work transfer(const Tensor& tensor) { return {0, 2 * moved(tensor)}; }

}  // namespace

std::vector<float> floats_to_host(Backend& backend, const Tensor& in) {
  if (in.dtype() != DType::bf16) return to_host<float>(backend, in);
  const std::vector<Bf16> halves = to_host<Bf16>(backend, in);
  std::vector<float> floats(halves.size());
  std::ranges::transform(halves, floats.begin(), [](Bf16 half) { return as_float(half); });
  return floats;
}

Backend::Backend(std::unique_ptr<MemorySource> memory, Kernels* kernels)
    : allocator_(std::make_shared<CachingAllocator>(std::move(memory))), kernels_(kernels) {}

void Backend::show(const char* op, const Work& work, Operands operands, const std::function<void()>& kernel) {
  observer_->around({op, work, operands}, kernel);
}

template <class Function>
void Backend::observe(const char* op, const Work& work, Operands operands, const Function& function) {
  if (observer_ == nullptr) return function();
  show(op, work, operands, std::cref(function));
}

Tensor Backend::allocate(DType dtype, Shape shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.numel()) * size_of(dtype);
  return {std::make_shared<Storage>(allocator_, bytes), dtype, shape};
}

Tensor Backend::zeros(DType dtype, Shape shape) {
  Tensor out = allocate(dtype, shape);
  fill(out, 0);
  return out;
}

void Backend::fill(const Tensor& out, double value) { run(Fill{out, value}); }

void Backend::copy(const Tensor& out, const Tensor& in) { run(Copy{out, in}); }

void Backend::copy_from_host(const Tensor& out, std::span<const std::byte> in) {
  check(out.defined(), "copy_from_host: out is missing");
  check(out.bytes() == in.size(), "copy_from_host: ", in.size(), " bytes into a tensor of ", out.bytes());
  if (!in.empty())
    observe("copy_from_host", transfer(out), std::array{&out},
            [&] { do_copy_from_host(out.raw(), in.data(), in.size()); });
}

void Backend::copy_to_host(std::span<std::byte> out, const Tensor& in) {
  const HostCopy copy{out, in};
  copy_to_host({&copy, 1});
}

void Backend::copy_to_host(std::span<const HostCopy> copies) {
  std::vector<HostCopy> filled;
  Work work;
  for (const auto& [out, in] : copies) {
    check(in.defined(), "copy_to_host: in is missing");
    check(in.bytes() == out.size(), "copy_to_host: a tensor of ", in.bytes(), " bytes into ", out.size());
    if (out.empty()) continue;
    filled.push_back({out, in});
    work.bytes += transfer(in).bytes;
  }
  if (!filled.empty())
    observe("copy_to_host", work, std::array{&filled.front().in}, [&] { do_copy_to_host(filled); });
}

void Backend::send_ahead(std::span<const std::byte> in) {
  const auto words = static_cast<std::int64_t>(in.size() / sizeof(std::int32_t));
  check(in.size() % sizeof(std::int32_t) == 0 && words > 0, "send_ahead: ", in.size(), " bytes");
  if (!sent_.defined() || sent_.numel() != words) sent_ = allocate(DType::i32, {words});
  do_send_ahead(sent_, in);
}

void Backend::receive(const Tensor& out) {
  const Checks checks("receive", *this);
  checks.that(sent_.defined(), "a call of send_ahead() before it");
  checks.elements(out, DType::i32, sent_.numel(), "out");
  observe("copy_from_host", transfer(out), std::array{&out}, [&] { do_receive(out, sent_); });
}

void Backend::do_receive(const Tensor& out, const Tensor& buffer) {
  if (kernels_ != nullptr) kernels_->compute(Copy{out, buffer});
}

void Backend::repeat(Recording& recording, const std::function<void()>& work) {
  observer_ == nullptr ? do_repeat(recording, work) : work();
}

}  // namespace stagegpt
