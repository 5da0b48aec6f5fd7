// Philox4x32-10, a counter-based generator: J. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011. A number is a function of (seed, stream, step, element) only. So it does not depend on the stage,
// the number of ranks or threads, or the order in which numbers are drawn.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace stagegpt {

// Selects a sequence of random numbers. `stream` is its purpose (RandomStream), `step` counts its uses.
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;
  std::uint32_t step = 0;
};

// Streams in use. A stream that exists several times (a dropout per layer) adds its index in the upper bits.
enum class RandomStream : std::uint32_t {
  init,
  shuffle,
  sample,
  dropout_embedding,
  dropout_attention,
  dropout_residual,
  mixture
};

constexpr std::uint32_t stream_id(RandomStream stream, std::uint32_t index = 0) {
  return static_cast<std::uint32_t>(stream) | index << 8;
}

// The four words of block `block` of a sequence (ten rounds).
constexpr std::array<std::uint32_t, 4> philox(const RandomKey& key, std::uint64_t block) {
  std::uint32_t c0 = static_cast<std::uint32_t>(block), c1 = static_cast<std::uint32_t>(block >> 32);
  std::uint32_t c2 = key.step, c3 = key.stream;
  std::uint32_t k0 = static_cast<std::uint32_t>(key.seed), k1 = static_cast<std::uint32_t>(key.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53} * c0, p1 = std::uint64_t{0xCD9E8D57} * c2;
    const std::uint32_t hi0 = static_cast<std::uint32_t>(p0 >> 32), lo0 = static_cast<std::uint32_t>(p0);
    const std::uint32_t hi1 = static_cast<std::uint32_t>(p1 >> 32), lo1 = static_cast<std::uint32_t>(p1);
    c0 = hi1 ^ c1 ^ k0;
    c1 = lo1;
    c2 = hi0 ^ c3 ^ k1;
    c3 = lo0;
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return {c0, c1, c2, c3};
}

// Element `element` of a sequence of 32-bit words. Not an index: on a GPU, an array that is indexed by a
// variable is in memory.
constexpr std::uint32_t random_word(const RandomKey& key, std::uint64_t element) {
  const auto words = philox(key, element / 4);
  const bool odd = element % 2 != 0;
  return element % 4 < 2 ? (odd ? words[1] : words[0]) : (odd ? words[3] : words[2]);
}

// Uniform in [0, 1), with 24 bits, the precision of a float.
constexpr float uniform_of(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

constexpr float random_uniform(const RandomKey& key, std::uint64_t element) {
  return uniform_of(random_word(key, element));
}

// Standard normal (Box-Muller on a pair of words, in f64).
inline double random_normal(const RandomKey& key, std::uint64_t element) {
  const auto words = philox(key, element / 4);
  const std::size_t pair = element % 4 / 2 * 2;
  const double u = (words[pair] + 0.5) * 0x1p-32, angle = 2 * std::numbers::pi * words[pair + 1] * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u));
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace stagegpt
