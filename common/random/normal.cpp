// Normal random numbers by the Box-Muller transform, in loops that the compiler vectorises.
//
//   u = (w₀ + 1/2) / 2³²,  a = 2π w₁ / 2³²,  normal numbers √(-2 ln u) · cos a and √(-2 ln u) · sin a
//
// for the words w₀, w₁ of a pair; a Philox block of four words gives two pairs. The definition,
// random_normal(), uses logarithm, cosine and sine of the C library. Here they are polynomials in f64, and a
// result differs from the definition by less than kError times the radius. If both ends of this interval
// round to the same f32, the definition rounds to it too. If not, about once in 250,000 numbers,
// random_normal() is called. (This is Ziv's rounding test: "Fast evaluation of elementary mathematical
// functions with correctly rounded last bit", ACM TOMS 1991.)
#include "common/random/normal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numbers>

namespace stagegpt {
namespace {

// Error bounds: logarithm 2e-15 (relative), half of which in the radius; cosine and sine 2e-15; in the
// definition, the rounded angle (at most 2π) 1e-15, and its functions (1 ULP) 5e-16.
constexpr double kError = 0x1p-46;  // 1.4e-14
constexpr int kBlocks = 64;         // Philox blocks per loop
constexpr int kNumbers = 4 * kBlocks;

// ln u for normal, positive u: u = 2^e m with m in [√½, √2), and ln m = 2 artanh s = 2 (s + s³/3 + s⁵/5 + …)
// with s = (m-1)/(m+1), |s| <= 0.172. The first omitted term is below 1e-15 (relative).
inline double vector_log(double u) {
  constexpr std::uint64_t kSqrtHalf = std::bit_cast<std::uint64_t>(std::numbers::sqrt2 / 2);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(u);
  const std::int64_t e = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(e) << 52));
  const double s = (m - 1) / (m + 1), z = s * s;
  double p = 2.0 / 17;
  p = p * z + 2.0 / 15;
  p = p * z + 2.0 / 13;
  p = p * z + 2.0 / 11;
  p = p * z + 2.0 / 9;
  p = p * z + 2.0 / 7;
  p = p * z + 2.0 / 5;
  p = p * z + 2.0 / 3;
  p = p * z + 2.0;
  return static_cast<double>(e) * std::numbers::ln2 + p * s;
}

struct Direction {
  double cosine, sine;
};

// Cosine and sine of the angle 2π word / 2³². Range reduction to the nearest multiple of π/2, |x| <= π/4, is
// done in integers, without error. Taylor polynomials to x¹⁵ and x¹⁴; the first omitted terms are
// below 1.1e-15.
inline Direction vector_direction(std::uint32_t word) {
  const std::uint32_t quarter = (word + (1u << 29)) >> 30;
  const double x = static_cast<std::int32_t>(word - (quarter << 30)) * (2 * std::numbers::pi * 0x1p-32);
  const double z = x * x;
  double s = -1.0 / 1307674368000;
  s = s * z + 1.0 / 6227020800;
  s = s * z - 1.0 / 39916800;
  s = s * z + 1.0 / 362880;
  s = s * z - 1.0 / 5040;
  s = s * z + 1.0 / 120;
  s = s * z - 1.0 / 6;
  s = x + x * z * s;
  double c = -1.0 / 87178291200;
  c = c * z + 1.0 / 479001600;
  c = c * z - 1.0 / 3628800;
  c = c * z + 1.0 / 40320;
  c = c * z - 1.0 / 720;
  c = c * z + 1.0 / 24;
  c = c * z - 1.0 / 2;
  c = 1 + z * c;
  const bool exchanged = (quarter & 1) != 0;
  const double cosine = exchanged ? s : c, sine = exchanged ? c : s;
  return {((quarter + 1) & 2) != 0 ? -cosine : cosine, (quarter & 2) != 0 ? -sine : sine};
}

// Writes elements 4 i + pair and 4 i + pair + 1 of `out`, from the first and second word of a pair in each
// block i. Returns whether all of them are certain to equal the definition.
bool fill_pairs(const std::uint32_t* first, const std::uint32_t* second, double mean, double std,
                float* out) {
  double cosine[kBlocks], sine[kBlocks], radius[kBlocks];
  for (int i = 0; i < kBlocks; ++i) {
    const Direction direction = vector_direction(second[i]);
    cosine[i] = direction.cosine;
    sine[i] = direction.sine;
  }
  for (int i = 0; i < kBlocks; ++i) radius[i] = std * std::sqrt(-2 * vector_log((first[i] + 0.5) * 0x1p-32));
  int uncertain = 0;
  for (int i = 0; i < kBlocks; ++i) {
    const double a = mean + radius[i] * cosine[i], b = mean + radius[i] * sine[i];
    const double error = radius[i] * kError;
    out[4 * i] = static_cast<float>(a);
    out[4 * i + 1] = static_cast<float>(b);
    uncertain |= static_cast<float>(a - error) != static_cast<float>(a + error);
    uncertain |= static_cast<float>(b - error) != static_cast<float>(b + error);
  }
  return uncertain == 0;
}

void define(const RandomKey& key, std::uint64_t first, double mean, double std, std::span<float> out) {
  for (float& number : out) number = static_cast<float>(mean + std * random_normal(key, first++));
}

}  // namespace

void draw_normal(const RandomKey& key, std::uint64_t first, double mean, double std, std::span<float> out) {
  const auto to_block = static_cast<std::size_t>((4 - first % 4) % 4);
  const std::size_t head = std::min(to_block, out.size());
  define(key, first, mean, std, out.first(head));
  first += head;
  out = out.subspan(head);
  for (; out.size() >= kNumbers; out = out.subspan(kNumbers), first += kNumbers) {
    std::uint32_t words[4][kBlocks];
    for (int i = 0; i < kBlocks; ++i) {
      const auto block = philox(key, first / 4 + static_cast<std::uint64_t>(i));
      for (std::size_t word = 0; word < 4; ++word) words[word][i] = block[word];
    }
    const bool even = fill_pairs(words[0], words[1], mean, std, out.data());
    const bool odd = fill_pairs(words[2], words[3], mean, std, out.data() + 2);
    if (!even || !odd) define(key, first, mean, std, out.first(kNumbers));
  }
  define(key, first, mean, std, out);
}

}  // namespace stagegpt
