#include "stage2_cuda/emulation/profile/block_choice.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <vector>

#include "common/base/error.h"

namespace stagegpt::gpu::emulation {
namespace {

// Takes ":NUMBER" from the end of the text, if it ends so.
std::optional<std::uint64_t> take_number(std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  const char* const end = text.data() + text.size();
  std::uint64_t number = 0;
  const auto [after, error] = std::from_chars(text.data() + colon + 1, end, number);
  if (error != std::errc() || after != end) return std::nullopt;
  text.resize(colon);
  return number;
}

}  // namespace

bool BlockChoice::names(std::string_view launched) const {
  return kernel == launched || kernel == launched.substr(0, launched.find('<'));
}

BlockChoice parsed_block_choice(const std::string& text) {
  BlockChoice choice{.kernel = text};
  std::vector<std::uint64_t> numbers;  // from the last one
  while (numbers.size() < 2) {
    const std::optional<std::uint64_t> number = take_number(choice.kernel);
    if (!number) break;
    numbers.push_back(*number);
  }
  if (choice.kernel.empty() || choice.kernel.ends_with(':')) {
    user_error("--emulator-block: expected KERNEL[:LAUNCH[:BLOCK]], got \"", text, "\"");
  }
  if (!numbers.empty()) choice.launch = numbers.back();
  if (numbers.size() == 2) choice.block = numbers.front();
  return choice;
}

}  // namespace stagegpt::gpu::emulation
