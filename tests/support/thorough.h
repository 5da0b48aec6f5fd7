// Whether tests go through all of many similar cases, as in CI, or through a sample of them.
#pragma once

namespace stagegpt::test {

#ifdef STAGEGPT_THOROUGH
inline constexpr bool kThorough = true;
#else
inline constexpr bool kThorough = false;
#endif

}  // namespace stagegpt::test
