#include "common/data/mixture.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <numeric>
#include <optional>
#include <ranges>
#include <sstream>

#include "common/base/error.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

struct Weighted {
  std::string data;
  std::optional<double> weight;
};

// "a.txt=0.7" -> "a.txt" and 0.7. No weight if there is no number behind the last "=".
Weighted parse_part(const std::string& part) {
  const std::size_t equals = part.rfind('=');
  if (equals == std::string::npos) return {part, {}};
  const char *begin = part.data() + equals + 1, *end = part.data() + part.size();
  double weight = 0;
  const auto [stop, error] = std::from_chars(begin, end, weight);
  if (begin == end || stop != end || error != std::errc()) return {part, {}};
  return {part.substr(0, equals), weight};
}

std::vector<Weighted> parse_parts(const std::string& data) {
  std::vector<Weighted> parts;
  std::istringstream in(data);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(parse_part(part));
  return parts;
}

void check_parts(const std::vector<Weighted>& parts) {
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    if (!part->weight)
      user_error("--data: \"", part->data,
                 "\" has no weight; expected one for each text, as in 'a.txt=0.7,b.txt=0.3'");
    if (part->data.empty()) user_error("--data: there is no name before the weight ", *part->weight);
    // A run keeps absolute paths.
    if (const std::string path = fs::absolute(part->data).string(); path.find(',') != std::string::npos)
      user_error("--data: the path of \"", part->data,
                 "\" has a comma, which separates the texts of a mixture: \"", path, "\"");
    if (!(*part->weight > 0 && std::isfinite(*part->weight)))
      user_error("--data: the weight of \"", part->data, "\" is ", *part->weight,
                 ", expected a positive number");
    if (std::ranges::find(parts.begin(), part, part->data, &Weighted::data) != part)
      user_error("--data: \"", part->data, "\" has two weights");
  }
}

// Numbers of samples in proportion to the weights, which sum to kMixtureBlock.
std::vector<std::int64_t> shares_of(const std::vector<Weighted>& parts) {
  const auto weight_of = [](const Weighted& part) { return *part.weight; };
  const double largest = std::ranges::max(parts | std::views::transform(weight_of));
  double sum = 0;  // relative to the largest, since their sum may not be finite
  for (const Weighted& part : parts) sum += *part.weight / largest;
  std::vector<std::int64_t> shares;
  std::vector<double> remainders;
  for (const Weighted& part : parts) {
    const double exact = *part.weight / largest / sum * static_cast<double>(kMixtureBlock);
    shares.push_back(static_cast<std::int64_t>(exact));
    remainders.push_back(exact - std::floor(exact));
  }
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return remainders[i]; });
  std::int64_t missing = kMixtureBlock - std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
  for (std::size_t i = 0; missing > 0; ++i, --missing) ++shares[order[i]];
  return shares;
}

}  // namespace

std::vector<MixtureSource> parse_mixture(const std::string& data) {
  const std::vector<Weighted> parts = parse_parts(data);
  const auto has_weight = [](const Weighted& part) { return part.weight.has_value(); };
  std::error_code ignored;
  if (std::ranges::none_of(parts, has_weight) || fs::exists(data, ignored)) return {};
  check_parts(parts);
  const std::vector<std::int64_t> shares = shares_of(parts);
  std::vector<MixtureSource> sources;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (shares[i] == 0)
      user_error("--data: the weight of \"", parts[i].data, "\" is less than 1/", kMixtureBlock, " of all");
    sources.push_back({parts[i].data, shares[i]});
  }
  return sources;
}

std::string with_absolute_paths(const std::string& data) {
  if (parse_mixture(data).empty()) return fs::absolute(data).string();
  std::string absolute;
  for (std::size_t begin = 0; begin < data.size();) {
    const std::size_t end = std::min(data.find(',', begin), data.size());
    if (begin > 0) absolute += ',';
    absolute += fs::absolute(data.substr(begin, end - begin)).string();
    begin = end + 1;
  }
  return absolute;
}

}  // namespace stagegpt
