#include "common/json.h"

#include <set>
#include <vector>

namespace stagegpt {

nlohmann::json parse_json(std::string_view text) {
  using Json = nlohmann::json;
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto check_keys = [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      constexpr std::size_t kShown = 60;
      user_error("the key '", value.get<std::string>().substr(0, kShown), "' is there twice");
    }
    return true;
  };
  return read_json([&] { return Json::parse(text, check_keys); });
}

std::string json_message(const nlohmann::json::exception& error) {
  constexpr std::size_t kShown = 200;
  std::string message = error.what();  // "[json.exception.type_error.302] type must be ..."
  if (const std::size_t end = message.find("] "); end != std::string::npos) message.erase(0, end + 2);
  return message.substr(0, kShown);
}

}  // namespace stagegpt
