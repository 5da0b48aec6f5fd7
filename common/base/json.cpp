#include "common/base/json.h"

#include <algorithm>
#include <set>
#include <vector>

namespace stagegpt {

namespace {

// Refuses what nlohmann accepts, without keeping any value. Its own parser would call back too, but looks
// through all elements of an array after each object among them, and so takes minutes for a large one.
class Strictness final : public nlohmann::json::json_sax_t {
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
    if (!keys_.back().insert(key).second) user_error("the key '", key.substr(0, kShown), "' is there twice");
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;  // nlohmann::json::parse() says it
  }

 private:
  bool open() {
    constexpr std::size_t kDeepest = 64;  // nothing that is read here is deeper than 6
    if (keys_.size() == kDeepest) user_error("values are nested more than ", kDeepest, " deep");
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;  // of each object or array that is open
};

}  // namespace

nlohmann::json parse_json(std::string_view text) {
  Strictness strictness;
  nlohmann::json::sax_parse(text, &strictness);
  return read_json([&] { return nlohmann::json::parse(text); });
}

std::uint64_t natural_number(const nlohmann::json& json, std::string_view what) {
  if (!json.is_number_unsigned()) user_error(what, " is ", json.dump().substr(0, 40), ", no natural number");
  return json.get<std::uint64_t>();
}

std::string json_message(const nlohmann::json::exception& error) {
  constexpr std::size_t kShown = 200;
  std::string message = error.what();  // "[json.exception.type_error.302] type must be ..."
  if (const std::size_t end = message.find("] "); end != std::string::npos) message.erase(0, end + 2);
  message.erase(std::min(message.size(), message.find("; last read")));  // may be any bytes, and many
  return message.substr(0, kShown);
}

}  // namespace stagegpt
