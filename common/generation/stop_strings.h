// Filters a stream of text so that it ends before the first stop string.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagegpt {

class StopStrings {
 public:
  // The strings must not be empty.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  // Adds text, and returns what can be printed now: everything before a stop string, and before an end that
  // may be the beginning of one.
  std::string push(std::string_view text) {
    held_ += text;
    std::size_t end = std::string::npos;
    for (const std::string& stop : strings_) end = std::min(end, held_.find(stop));
    found_ = end != std::string::npos;
    if (found_) return take(end);
    std::size_t held = 0;
    for (const std::string& stop : strings_) held = std::max(held, common_part(stop));
    return take(held_.size() - held);
  }
  // The text that was held back, if the text has ended without a stop string.
  std::string finish() { return found_ ? std::string() : std::exchange(held_, {}); }
  bool found() const { return found_; }

 private:
  // The length of the longest suffix of held_ that is a proper prefix of `stop`.
  std::size_t common_part(std::string_view stop) const {
    std::size_t n = std::min(stop.size() - 1, held_.size());
    while (!std::string_view(held_).ends_with(stop.substr(0, n))) --n;
    return n;
  }
  std::string take(std::size_t n) {
    std::string text = held_.substr(0, n);
    held_.erase(0, n);
    return text;
  }

  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace stagegpt
