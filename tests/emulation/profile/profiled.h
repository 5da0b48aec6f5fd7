// A fixture for tests of what the emulator's profile counts, with the arrays that kernels of patterns.cuh
// use.
#pragma once

#include "stage2_cuda/emulation/profile/profiler.h"
#include "stage2_cuda/emulation/profile/summary.h"
#include "tests/emulation/emulated.h"

namespace stagegpt::test {

class ProfileTest : public testing::Test {
 protected:
  using AccessCounts = gpu::emulation::AccessCounts;
  using Kind = gpu::emulation::Kind;

  const gpu::emulation::KernelCounts& kernel() {
    EXPECT_EQ(profiler_.profile().kernels.size(), 1U);
    return profiler_.profile().kernels.begin()->second;
  }
  // All accesses of the kernel that has run, of one kind.
  AccessCounts counts(bool shared, Kind kind) {
    AccessCounts sum;
    sum.shared = shared;
    for (const auto& [access, counts] : kernel().accesses) {
      if (counts.shared == shared && counts.kind == kind) sum.add(counts);
    }
    return sum;
  }
  AccessCounts global_reads() { return counts(false, Kind::read); }
  AccessCounts global_writes() { return counts(false, Kind::write); }
  AccessCounts shared_reads() { return counts(true, Kind::read); }
  AccessCounts shared_writes() { return counts(true, Kind::write); }
  const std::vector<gpu::emulation::Race>& races() { return profiler_.profile().races; }

  DeviceArray<float> in_{std::vector<float>(2048, 1.0F)}, out_{2048};
  DeviceArray<int> counter_{1};
  gpu::emulation::Profiler profiler_;
};

struct Sectors {
  std::uint64_t requests, lanes, touched, ideal;
};
inline void expect_sectors(const gpu::emulation::AccessCounts& counts, const Sectors& expected) {
  EXPECT_EQ(counts.requests, expected.requests);
  EXPECT_EQ(counts.lanes, expected.lanes);
  EXPECT_EQ(counts.sectors, expected.touched);
  EXPECT_EQ(counts.ideal_sectors, expected.ideal);
}

struct Wavefronts {
  std::uint64_t requests, count, ideal;
  unsigned ways;
};
inline void expect_wavefronts(const gpu::emulation::AccessCounts& counts, const Wavefronts& expected) {
  EXPECT_EQ(counts.requests, expected.requests);
  EXPECT_EQ(counts.wavefronts, expected.count);
  EXPECT_EQ(counts.ideal_wavefronts, expected.ideal);
  EXPECT_EQ(counts.ways, expected.ways);
}

}  // namespace stagegpt::test
