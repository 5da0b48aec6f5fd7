// Base of the backends whose device is the host: memory is host memory, and ops are synchronous.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "common/backend/backend.h"
#include "common/backend/ops/elementwise.h"
#include "stage0_serial/host_memory.h"

namespace stagegpt {

class HostBackend : public Backend, protected Kernels {
 public:
  explicit HostBackend(std::unique_ptr<MemorySource> memory = std::make_unique<HostMemory>())
      : Backend(std::move(memory), this) {}
  void synchronize() override {}

 private:
  void compute(const Copy& op) override { std::memcpy(op.out.raw(), op.in.raw(), op.in.bytes()); }
  void do_copy_from_host(void* out, const void* in, std::size_t bytes) override {
    std::memcpy(out, in, bytes);
  }
  void do_copy_to_host(std::span<const HostCopy> copies) override {
    for (const auto& [out, in] : copies) std::memcpy(out.data(), in.raw(), out.size());
  }
};

}  // namespace stagegpt
