#include "common/data/choice_file.h"

#include <algorithm>
#include <cctype>
#include <cstring>

#include "common/base/json.h"

namespace stagegpt {
namespace {

// ---- JSON Lines

std::string without_outer_space(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\v\f\r";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin));
}

// Replaces each occurrence, from left to right; what was inserted is not searched.
std::string replaced(const std::string& text, std::string_view old, std::string_view by) {
  std::string result;
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(old, at)) != std::string::npos; at = found + old.size()) {
    result.append(text, at, found - at).append(by);
  }
  return result.append(text, at);
}

// Without "[…]" in a line.
std::string without_brackets(std::string text) {
  std::size_t open = 0;
  while ((open = text.find('[', open)) != std::string::npos) {
    const std::size_t close = text.find_first_of("]\n", open);
    if (close != std::string::npos && text[close] == ']') {
      text.erase(open, close + 1 - open);
    } else {
      ++open;
    }
  }
  return text;
}

// HellaSwag's texts from WikiHow have marks such as "[header]" and "[title]". This is `preprocess` of
// lm-evaluation-harness (lm_eval/tasks/hellaswag/utils.py).
std::string without_marks(const std::string& text) {
  return replaced(without_brackets(replaced(without_outer_space(text), " [title]", ". ")), "  ", " ");
}

// As Python's str.capitalize(), for ASCII letters.
std::string capitalised(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

// Throws UserError, which names the field, if it is missing or has another type.
template <class T>
T field(const nlohmann::json& question, const char* name) {
  if (!question.contains(name)) user_error("'", name, "' is missing");
  return naming(concat("'", name, "'"), [&] { return read_json([&] { return question[name].get<T>(); }); });
}

// A number, or its digits in a text.
std::size_t label_of(const nlohmann::json& question, std::size_t endings) {
  const auto label = field<nlohmann::json>(question, "label");
  for (std::size_t i = 0; i < endings; ++i) {
    if (label == i || label == std::to_string(i)) return i;
  }
  user_error("'label' is ", label.dump().substr(0, 40), ", expected 0 to ", endings - 1,
             label == "" ? " (in a test set without labels?)" : "");
}

ChoiceText parse_choice(const nlohmann::json& question) {
  if (!question.is_object()) user_error("expected an object, got the JSON type ", question.type_name());
  ChoiceText choice;
  choice.endings = field<std::vector<std::string>>(question, "endings");
  if (choice.endings.size() < 2) user_error("'endings' has ", choice.endings.size(), ", expected at least 2");
  choice.label = label_of(question, choice.endings.size());
  if (question.contains("context")) {
    choice.context = field<std::string>(question, "context");
    return choice;
  }
  if (!question.contains("activity_label"))
    user_error("expected 'context', 'endings' and 'label', or HellaSwag's fields");
  choice.context = without_marks(field<std::string>(question, "activity_label") + ": " +
                                 field<std::string>(question, "ctx_a") + " " +
                                 capitalised(field<std::string>(question, "ctx_b")));
  for (std::string& ending : choice.endings) ending = without_marks(ending);
  return choice;
}

// ---- llm.c's file

constexpr std::int32_t kLlmcMagic = 20240522, kLlmcVersion = 1;
constexpr std::size_t kLlmcHeaderBytes = 256 * sizeof(std::int32_t);
constexpr std::uint16_t kBegin = 65535;  // before each question

std::int32_t header_field(std::span<const std::byte> file, std::size_t i) {
  std::int32_t value = 0;
  std::memcpy(&value, file.data() + i * sizeof value, sizeof value);
  return value;
}

// Reads u16 one after another.
class Cells {
 public:
  explicit Cells(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::uint16_t next() {
    if (bytes_.size() < sizeof(std::uint16_t)) user_error("the file ends too early");
    std::uint16_t value = 0;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  // A number of tokens, then these tokens.
  std::vector<std::int32_t> tokens() {
    std::vector<std::int32_t> ids(next());
    for (std::int32_t& id : ids) id = next();
    return ids;
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

ChoiceTokens next_choice(Cells& cells) {
  if (const std::uint16_t begin = cells.next(); begin != kBegin)
    user_error("expected ", kBegin, " at its beginning, got ", begin);
  cells.next();  // its size in bytes
  cells.next();  // its index
  ChoiceTokens choice;
  choice.label = cells.next();
  const std::size_t endings = cells.next();
  if (endings < 2 || choice.label >= endings)
    user_error("ending ", choice.label, " of ", endings, " is said to be right");
  choice.context = cells.tokens();
  for (std::size_t i = 0; i < endings; ++i) choice.endings.push_back(cells.tokens());
  return choice;
}

}  // namespace

std::vector<ChoiceText> parse_choice_lines(std::string_view text) {
  std::vector<ChoiceText> choices;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (without_outer_space(line).empty()) continue;
    choices.push_back(naming(concat("line ", number), [&] { return parse_choice(parse_json_line(line)); }));
    choices.back().line = number;
  }
  return choices;
}

bool is_llmc_choice_file(std::span<const std::byte> file) {
  return file.size() >= kLlmcHeaderBytes && header_field(file, 0) == kLlmcMagic;
}

std::vector<ChoiceTokens> parse_llmc_choices(std::span<const std::byte> file) {
  if (header_field(file, 1) != kLlmcVersion)
    user_error("version ", header_field(file, 1), " of llm.c's format, expected ", kLlmcVersion);
  const std::int32_t count = header_field(file, 2);
  std::vector<ChoiceTokens> choices;
  Cells cells(file.subspan(kLlmcHeaderBytes));
  for (std::int32_t i = 0; i < count; ++i)
    choices.push_back(naming(concat("question ", i + 1, " of ", count), [&] { return next_choice(cells); }));
  if (!cells.at_end()) user_error("the file is longer than the ", count, " questions that its header names");
  return choices;
}

}  // namespace stagegpt
