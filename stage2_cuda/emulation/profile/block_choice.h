// The block that --emulator-block names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stagegpt::gpu::emulation {

struct BlockChoice {
  std::string kernel;
  std::uint64_t launch = 0;  // which of the launches of `kernel`, from 0
  std::uint64_t block = 0;   // its number in the grid, from 0, x first

  // `kernel` is the whole name, as "sum_kernel<float, 4>", or the name without template arguments, which
  // means the launches of all of them.
  bool names(std::string_view launched) const;
};

// Parses KERNEL[:LAUNCH[:BLOCK]]. A name may contain "::". Throws UserError.
BlockChoice parsed_block_choice(const std::string& text);

}  // namespace stagegpt::gpu::emulation
