// A mixture of texts: training takes samples of each in proportion to its weight.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagegpt {

// Samples are mixed in blocks of this many. Each block has a fixed number of samples of each text.
inline constexpr std::int64_t kMixtureBlock = 10'000;

struct MixtureSource {
  std::string data;        // as --data of this text alone
  std::int64_t share = 0;  // samples of each block
};

// The texts of 'a.txt=0.7,b.txt=0.3'. Shares are the weights, divided by their sum and rounded so that they
// sum to kMixtureBlock (largest remainders first). Empty if `data` is no mixture: if no part ends in a
// weight, or if it is the name of a file. Throws UserError if only some parts have a weight, if a weight is
// not positive or its share would be 0, if a text occurs twice, or if its absolute path has a comma.
std::vector<MixtureSource> parse_mixture(const std::string& data);

// A text of a mixture in the training tokens.
struct MixturePart {
  std::int64_t size = 0;   // in tokens; it begins where the part before it ends
  std::int64_t share = 0;  // samples of each block
};

// `data` with absolute paths, whether it is a mixture or not.
std::string with_absolute_paths(const std::string& data);

}  // namespace stagegpt
