// A contiguous row-major tensor: a shape, an element type, and a position in a shared block of memory. A
// Tensor is a handle: a copy refers to the same elements.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/error.h"
#include "common/tensor/dtype.h"
#include "common/tensor/shape.h"
#include "common/tensor/storage.h"

namespace stagegpt {

class Tensor {
 public:
  Tensor() = default;
  // A tensor whose first element is element `offset` of the storage.
  Tensor(std::shared_ptr<Storage> storage, DType dtype, Shape shape, std::int64_t offset = 0)
      : storage_(std::move(storage)), dtype_(dtype), shape_(shape), offset_(offset) {
    check((offset_ + numel()) * size_of(dtype_) <= storage_->bytes(), "tensor: ", shape_, " at ", offset_,
          " does not fit its storage");
  }

  bool defined() const { return storage_ != nullptr; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  std::int64_t numel() const { return shape_.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype_); }

  // Address of the first element, on the backend's device.
  void* raw() const { return storage_->data() + static_cast<std::size_t>(offset_) * size_of(dtype_); }
  template <class T>
  T* data() const {
    check(defined() && dtype_ == kDTypeOf<T>, "tensor: ", dtype_, " read as ", kDTypeOf<T>);
    return static_cast<T*>(raw());
  }

  // A tensor of these elements with another shape.
  Tensor view(Shape shape) const {
    check(shape.numel() == numel(), "tensor: cannot view ", shape_, " as ", shape);
    return {storage_, dtype_, shape, offset_};
  }
  // A tensor of the given shape whose first element is element `begin` of this one.
  Tensor slice(std::int64_t begin, Shape shape) const {
    check(begin >= 0 && begin + shape.numel() <= numel(), "tensor: slice ", begin, " + ", shape, " of ",
          shape_);
    return {storage_, dtype_, shape, offset_ + begin};
  }

  // True if no other tensor uses this one's storage.
  bool sole_owner() const { return storage_.use_count() == 1; }
  bool same_memory(const Tensor& other) const {
    return storage_ == other.storage_ && offset_ == other.offset_;
  }

 private:
  std::shared_ptr<Storage> storage_;
  DType dtype_ = DType::f32;
  Shape shape_;
  std::int64_t offset_ = 0;
};

}  // namespace stagegpt
