// Files of multiple-choice questions: JSON Lines, and llm.c's binary file of HellaSwag.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace stagegpt {

// A question as text. An ending follows the context after a space.
struct ChoiceText {
  std::string context;
  std::vector<std::string> endings;
  std::size_t label = 0;  // index of the right ending
  std::size_t line = 0;   // of the file, counted from 1
};

// A line is an object: {"context": "…", "endings": ["…", …], "label": 0}, or a question of HellaSwag as
// distributed ("activity_label", "ctx_a", "ctx_b", "endings", "label"), whose texts are changed as
// lm-evaluation-harness does. Empty lines are skipped. Throws UserError, which names the line.
std::vector<ChoiceText> parse_choice_lines(std::string_view text);

// A question as tokens.
struct ChoiceTokens {
  std::vector<std::int32_t> context;
  std::vector<std::vector<std::int32_t>> endings;  // each begins with its space
  std::size_t label = 0;
};

// Whether the file begins with the magic number of llm.c's format.
bool is_llmc_choice_file(std::span<const std::byte> file);
// The tokens are GPT-2's; none is checked. Layout: docs/file_formats.md. Throws UserError, which names the
// question, for anything else.
std::vector<ChoiceTokens> parse_llmc_choices(std::span<const std::byte> file);

}  // namespace stagegpt
