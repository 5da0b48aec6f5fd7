#include "common/json.h"

#include <algorithm>
#include <set>
#include <vector>

namespace stagegpt {

nlohmann::json parse_json(std::string_view text) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto check_value = [&](int depth, Json::parse_event_t event, Json& value) {
    constexpr int kDeepest = 64;  // nothing that is read here is deeper than 6
    if (depth > kDeepest) user_error("values are nested more than ", kDeepest, " deep");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      constexpr std::size_t kShown = 60;
      user_error("the key '", value.get<std::string>().substr(0, kShown), "' is there twice");
    }
    return true;
  };
  return read_json([&] { return Json::parse(text, check_value); });
}

std::string json_message(const nlohmann::json::exception& error) {
  constexpr std::size_t kShown = 200;
  std::string message = error.what();  // "[json.exception.type_error.302] type must be ..."
  if (const std::size_t end = message.find("] "); end != std::string::npos) message.erase(0, end + 2);
  message.erase(std::min(message.size(), message.find("; last read")));  // may be any bytes, and many
  return message.substr(0, kShown);
}

}  // namespace stagegpt
