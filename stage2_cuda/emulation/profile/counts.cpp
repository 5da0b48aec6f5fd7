#include "stage2_cuda/emulation/profile/counts.h"

#include <algorithm>
#include <bit>

#include "stage2_cuda/emulation/vector_clock.h"

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::uintptr_t kSectorBytes = 32, kWordBytes = 4, kBanks = 32;

// The wavefronts of the lanes `mask`.
unsigned phase_wavefronts(const WarpAccess& access, unsigned mask) {
  std::array<std::array<std::uintptr_t, kWarpSize>, kBanks> words;  // distinct ones, of each bank
  std::array<unsigned, kBanks> counts = {};
  for_lanes(mask, [&](unsigned lane) {
    const std::uintptr_t begin = access.address[lane];
    for (std::uintptr_t word = begin / kWordBytes; word * kWordBytes < begin + access.bytes; ++word) {
      const std::uintptr_t bank = word % kBanks;
      const auto end = words[bank].begin() + counts[bank];
      if (std::find(words[bank].begin(), end, word) == end) words[bank][counts[bank]++] = word;
    }
  });
  return *std::ranges::max_element(counts);
}

void add_sectors(AccessCounts& counts, const WarpAccess& access) {
  std::array<std::uintptr_t, kWarpSize> begins;
  unsigned lanes = 0;
  for_lanes(access.mask, [&](unsigned lane) { begins[lanes++] = access.address[lane]; });
  const auto end = begins.begin() + lanes;
  if (!std::is_sorted(begins.begin(), end)) std::sort(begins.begin(), end);
  std::uintptr_t bytes = 0, seen = 0, next_sector = 0;  // before which all bytes, and sectors, are counted
  for (auto begin = begins.begin(); begin != end; ++begin) {
    const std::uintptr_t after = *begin + access.bytes;
    bytes += after - std::clamp(seen, *begin, after);
    seen = std::max(seen, after);
    const std::uintptr_t first = std::max(*begin / kSectorBytes, next_sector);
    const std::uintptr_t behind = (after - 1) / kSectorBytes + 1;
    if (behind > first) counts.sectors += behind - first;
    next_sector = std::max(next_sector, behind);
  }
  counts.ideal_sectors += (bytes + kSectorBytes - 1) / kSectorBytes;
}

void add_wavefronts(AccessCounts& counts, const WarpAccess& access) {
  const unsigned phase_lanes = access.bytes <= 4 ? 32 : access.bytes <= 8 ? 16 : 8;
  const unsigned first_phase = phase_lanes == 32 ? ~0U : (1U << phase_lanes) - 1;
  for (unsigned begin = 0; begin < kWarpSize; begin += phase_lanes) {
    const unsigned mask = access.mask & first_phase << begin;
    if (mask == 0) continue;
    const unsigned wavefronts = phase_wavefronts(access, mask);
    counts.wavefronts += wavefronts;
    ++counts.ideal_wavefronts;
    counts.ways = std::max(counts.ways, wavefronts);
  }
}

}  // namespace

void AccessCounts::add(const WarpAccess& access, unsigned existing) {
  ++requests;
  lanes += static_cast<Count>(std::popcount(access.mask));
  existing_lanes += existing;
  shared ? add_wavefronts(*this, access) : add_sectors(*this, access);
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
