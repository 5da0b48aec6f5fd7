#include "stage2_cuda/plan_cache.h"

#include <utility>

#include "common/base/json.h"

namespace stagegpt::gpu {
namespace {

constexpr int kVersion = 1;

}  // namespace

PlanCache PlanCache::parse(std::string_view text) {
  const nlohmann::json json = parse_json(text);
  if (!json.is_object()) user_error("expected an object");
  return read_json([&] {
    for (const char* field : {"device", "library"}) {
      if (json.contains(field) && !json[field].is_string()) user_error('"', field, "\": expected a text");
    }
    if (const int version = json.at("version").get<int>(); version != kVersion)
      user_error("expected plans of version ", kVersion, ", got version ", version);
    PlanCache cache({json.at("device").get<std::string>(), json.at("library").get<std::string>()});
    if (!json.at("plans").is_object()) user_error("\"plans\": expected an object");
    for (const auto& [product, algorithm] : json.at("plans").items()) {
      if (!algorithm.is_string()) user_error("\"plans\": expected a text for \"", product, '"');
      cache.set(product, algorithm.get<std::string>());
    }
    return cache;
  });
}

std::string PlanCache::text() const {
  const Json json = {{"version", kVersion},
                     {"device", origin_.device},
                     {"library", origin_.library},
                     {"plans", Json(plans_)}};
  return json.dump(2) + '\n';
}

const std::string* PlanCache::find(const std::string& product) const {
  const auto found = plans_.find(product);
  return found == plans_.end() ? nullptr : &found->second;
}

void PlanCache::set(const std::string& product, std::string algorithm) {
  plans_[product] = std::move(algorithm);
}

}  // namespace stagegpt::gpu
