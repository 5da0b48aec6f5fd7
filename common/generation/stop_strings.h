// Text on its way out, which ends before the first stop string.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagegpt {

class StopStrings {
 public:
  // None of them is empty.
  explicit StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {}

  // What may go out now: all but what may be the beginning of a stop string, and nothing from one on.
  std::string push(std::string_view text) {
    if (found_) return "";
    held_ += text;
    std::size_t end = std::string::npos;
    for (const std::string& stop : strings_) end = std::min(end, held_.find(stop));
    found_ = end != std::string::npos;
    if (found_) return take(end);
    std::size_t held = 0;
    for (const std::string& stop : strings_) held = std::max(held, common_part(stop));
    return take(held_.size() - held);
  }
  // What was held back when the text ends without a stop string.
  std::string finish() { return found_ ? std::string() : std::exchange(held_, {}); }
  bool found() const { return found_; }

 private:
  // The longest end of what is held that a stop string begins with.
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
