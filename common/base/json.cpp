#include "common/base/json.h"

#include <algorithm>
#include <set>
#include <vector>

namespace stagegpt {

namespace {

// Rejects JSON that nlohmann accepts but this project does not: duplicate keys and deep nesting. It stores no
// values. nlohmann::json::parse() with a callback could do the same, but after each object in an array it
// scans all elements of the array, which takes minutes for a large one.
class StrictChecker final : public nlohmann::json::json_sax_t {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(nlohmann::json::number_integer_t) override { return true; }
  bool number_unsigned(nlohmann::json::number_unsigned_t) override { return true; }
  bool number_float(nlohmann::json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    constexpr std::size_t kShown = 60;
    if (!keys_.back().insert(key).second) user_error("the key '", key.substr(0, kShown), "' occurs twice");
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;  // nlohmann::json::parse() reports it
  }

 private:
  bool open() {
    constexpr std::size_t kDeepest = 64;  // no file format of this project nests more than 6 levels
    if (keys_.size() == kDeepest) user_error("values are nested more than ", kDeepest, " levels deep");
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // the keys so far of each open object or array
};

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  StrictChecker checker;
  nlohmann::json::sax_parse(text, &checker);
  return read_json([&] { return nlohmann::json::parse(text); });
}

nlohmann::json parse_json_line(std::string_view line) {
  constexpr std::string_view kPlace = "at line 1, column", kColumn = "at column";
  try {
    return parse_json(line);
  } catch (const UserError& error) {
    std::string message = error.what();
    if (const std::size_t at = message.find(kPlace); at != message.npos)
      message.replace(at, kPlace.size(), kColumn);
    user_error(message);
  }
}

std::uint64_t natural_number(const nlohmann::json& json, std::string_view what) {
  if (!json.is_number_unsigned())
    user_error(what, " is ", json.dump().substr(0, 40), ", expected a non-negative integer");
  return json.get<std::uint64_t>();
}

std::string json_message(const nlohmann::json::exception& error) {
  constexpr std::size_t kShown = 200;
  std::string message = error.what();  // "[json.exception.type_error.302] type must be ..."
  if (const std::size_t end = message.find("] "); end != std::string::npos) message.erase(0, end + 2);
  // The quoted input may be long and not UTF-8.
  message.erase(std::min(message.size(), message.find("; last read")));
  return message.substr(0, kShown);
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace stagegpt
