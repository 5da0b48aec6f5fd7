// Whether the tests are built with the sanitizers, under which programs take several times as long.
#pragma once

namespace stagegpt::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace stagegpt::test
