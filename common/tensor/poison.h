// With AddressSanitizer, marks memory that must not be accessed: freed blocks, and the unused end of a block.
// Without it, these functions do nothing.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace stagegpt {

#if defined(__SANITIZE_ADDRESS__)
inline void poison(void* begin, std::size_t bytes) { __asan_poison_memory_region(begin, bytes); }
inline void unpoison(const void* begin, std::size_t bytes) { __asan_unpoison_memory_region(begin, bytes); }
#else
inline void poison(void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

}  // namespace stagegpt
