#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace stagegpt::test {
namespace {

// The first line that differs, from both texts.
std::string first_difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  for (int number = 1;; ++number) {
    std::string expected_line, line;
    const bool more = static_cast<bool>(std::getline(a, expected_line));
    const bool has_line = static_cast<bool>(std::getline(b, line));
    if (more && has_line && expected_line == line) continue;
    std::ostringstream text;
    text << "line " << number << "\n  expected: " << (more ? expected_line : "(the end)")
         << "\n  found:    " << (has_line ? line : "(the end)");
    return text.str();
  }
}

}  // namespace

void expect_golden(const std::string& text, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(STAGEGPT_GOLDEN_DIR) / name;
  if (std::getenv("STAGEGPT_RENEW_GOLDEN") != nullptr) {
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return;
  }
  std::ifstream in(path, std::ios::binary);
  const std::string expected{std::istreambuf_iterator<char>(in), {}};
  EXPECT_TRUE(in && text == expected) << name << ", " << first_difference(expected, text);
}

}  // namespace stagegpt::test
