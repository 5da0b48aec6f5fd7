// Whether the tests are built with sanitizers, which make programs several times slower.
#pragma once

namespace stagegpt::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace stagegpt::test
