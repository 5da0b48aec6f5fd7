#include "common/app/suggestion.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "common/base/error.h"

namespace stagegpt {
namespace {

// Flags of other GPT-2 programs, and ours for the same setting.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"--lr", "--learning-rate"},         {"--epochs", "--steps"},
    {"--num-train-epochs", "--steps"},   {"--max-iters", "--steps"},
    {"--max-steps", "--steps"},          {"--iterations", "--steps"},
    {"--out-dir", "--run-dir"},          {"--output-dir", "--run-dir"},
    {"--dtype", "--precision"},          {"--num-return-sequences", "--num-samples"},
    {"--max-length", "--max-new-tokens"}};

// Levenshtein's distance.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({substituted, row[j] + 1, row[j - 1] + 1}));
    }
  }
  return row.back();
}

}  // namespace

std::string suggestion(std::string_view given, const std::vector<std::string>& names) {
  for (const auto& [elsewhere, ours] : kElsewhere) {
    if (given == elsewhere && std::ranges::find(names, ours) != names.end())
      return concat(", did you mean ", ours, "?");
  }
  // A longer text differs from every name by more than the limit below, and its distances take long.
  std::size_t longest = 0;
  for (const std::string& name : names) longest = std::max(longest, name.size());
  if (given.size() > 2 * longest + 2) return "";
  const auto nearest = std::ranges::min_element(
      names, {}, [&](const std::string& name) { return edit_distance(given, name); });
  if (nearest == names.end() || edit_distance(given, *nearest) > std::max<std::size_t>(2, given.size() / 3))
    return "";
  return concat(", did you mean ", *nearest, "?");
}

}  // namespace stagegpt
