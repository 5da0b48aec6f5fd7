// Windows of a text that a model is evaluated on.
#pragma once

#include <cstdint>
#include <functional>

namespace stagegpt {

// The model reads the tokens [first, first + length) and predicts the token behind each of them. The last
// `scored` of these predictions count.
struct Window {
  std::int64_t first = 0, length = 0, scored = 0;

  bool operator==(const Window&) const = default;
};

struct Windows {
  std::int64_t count = 0;
  std::function<Window(std::int64_t i)> at;
};

// A selection of a text's windows, spread evenly: the i-th one is window floor(i · all / count).
struct WindowSample {
  std::int64_t all = 0;    // number of windows of the text, which do not overlap
  std::int64_t count = 0;  // number of selected windows, at most `all`

  std::int64_t operator[](std::int64_t i) const { return i * (all / count) + i * (all % count) / count; }
  bool is_all() const { return count == all; }
};

// Window w of the sample begins at token w · length, and all of its predictions count.
Windows sampled_windows(const WindowSample& sample, std::int64_t length);

// Windows that begin every `stride` tokens, 1 <= stride <= length, up to the end of a text of `tokens`
// tokens, at least two. The last window may be shorter. Each token but the first is predicted and counts
// once, in the first window that predicts it: after the first window, it then has a context of more than
// length - stride tokens.
Windows strided_windows(std::int64_t tokens, std::int64_t length, std::int64_t stride);

}  // namespace stagegpt
