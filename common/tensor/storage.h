// A block of memory, which is returned to its allocator when the last tensor that uses it is destroyed.
#pragma once

#include <cstddef>
#include <memory>

#include "common/tensor/caching_allocator.h"

namespace stagegpt {

class Storage {
 public:
  Storage(std::shared_ptr<CachingAllocator> allocator, std::size_t bytes)
      : allocator_(std::move(allocator)), bytes_(bytes), data_(allocator_->allocate(bytes)) {}
  ~Storage() { allocator_->deallocate(data_, bytes_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // An address on the backend's device. Only if the device is the host may the host dereference it.
  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  std::shared_ptr<CachingAllocator> allocator_;
  std::size_t bytes_;
  void* data_;
};

}  // namespace stagegpt
