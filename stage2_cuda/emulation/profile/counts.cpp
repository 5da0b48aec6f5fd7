#include "stage2_cuda/emulation/profile/counts.h"

#include <algorithm>
#include <bit>

namespace stagegpt::gpu::emulation {

void AccessCounts::add(const WarpAccess& access, unsigned existing) {
  ++requests;
  lanes += static_cast<Count>(std::popcount(access.mask));
  existing_lanes += existing;
  if (shared) {
    const Wavefronts own = wavefronts_of(access);
    wavefronts += own.count;
    ideal_wavefronts += own.ideal;
    ways = std::max(ways, own.ways);
  } else {
    const Sectors own = sectors_of(access);
    sectors += own.touched;
    ideal_sectors += own.ideal;
  }
}

void AccessCounts::add(const AccessCounts& other) {
  requests += other.requests;
  lanes += other.lanes;
  existing_lanes += other.existing_lanes;
  sectors += other.sectors;
  ideal_sectors += other.ideal_sectors;
  wavefronts += other.wavefronts;
  ideal_wavefronts += other.ideal_wavefronts;
  ways = std::max(ways, other.ways);
}

}  // namespace stagegpt::gpu::emulation
