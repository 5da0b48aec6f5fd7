#include "common/data/choice_task.h"

#include <algorithm>
#include <string>

#include "common/base/error.h"
#include "common/comm/agreement.h"
#include "common/data/choice_file.h"
#include "common/data/utf8.h"
#include "common/io/content_hash.h"
#include "common/io/file.h"

namespace stagegpt {
namespace {

std::int64_t characters_in(std::string_view text) {
  std::int64_t count = 0;
  each_character(text, [&](std::string_view) { ++count; });
  return count;
}

// The tokens that `whole` has more than its beginning.
std::vector<std::int32_t> tokens_behind(const std::vector<std::int32_t>& whole, std::size_t beginning) {
  return {whole.begin() + static_cast<std::ptrdiff_t>(std::min(beginning, whole.size())), whole.end()};
}

ChoiceTokens encode_choice(const ChoiceText& text, const Tokenizer& tokenizer) {
  ChoiceTokens choice{.context = {}, .endings = {}, .label = text.label};
  const std::size_t end =
      text.context.find_last_not_of(" \t\n\v\f\r") + 1;  // 0 if there is no other character
  choice.context = tokenizer.encode(std::string_view(text.context).substr(0, end));
  for (const std::string& ending : text.endings)
    choice.endings.push_back(
        tokens_behind(tokenizer.encode(text.context + ' ' + ending), choice.context.size()));
  return choice;
}

void require_tokens_of(const ChoiceTokens& choice, const Tokenizer& tokenizer) {
  const auto check = [&](const std::vector<std::int32_t>& ids) {
    for (const std::int32_t id : ids) {
      if (id >= tokenizer.size())
        user_error("has the token ", id, ", and the model's vocabulary has ", tokenizer.size(),
                   "; the file is for models with GPT-2's vocabulary");
    }
  };
  check(choice.context);
  for (const auto& ending : choice.endings) check(ending);
}

// Builds a task from questions.
class TaskBuilder {
 public:
  TaskBuilder(const Tokenizer& tokenizer, std::int64_t block_size)
      : tokenizer_(tokenizer), longest_(static_cast<std::size_t>(block_size) + 1) {}

  void add(ChoiceTokens choice, const std::vector<std::int64_t>& characters) {
    if (choice.context.empty()) {
      if (!tokenizer_.end_of_text())
        user_error("the context is empty, and the tokenizer has no end-of-text token to begin with");
      choice.context = {*tokenizer_.end_of_text()};
    }
    for (const auto& ending : choice.endings) task_.endings.push_back(continuation(choice.context, ending));
    task_.questions.push_back({characters, choice.label});
  }
  ChoiceTask finish() { return std::move(task_); }

 private:
  Continuation continuation(std::vector<std::int32_t> ids, const std::vector<std::int32_t>& ending) {
    if (ending.empty()) user_error("an ending has no tokens");
    if (ending.size() >= longest_)
      user_error("an ending has ", ending.size(), " tokens, and the model's context is ", longest_ - 1);
    ids.insert(ids.end(), ending.begin(), ending.end());
    if (ids.size() > longest_) {
      ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(longest_));
      ++task_.cut;
    }
    return {std::move(ids), std::ssize(ending)};
  }

  const Tokenizer& tokenizer_;
  std::size_t longest_;  // tokens of a context with its ending
  ChoiceTask task_;
};

ChoiceTask task_of_lines(std::string_view lines, const Tokenizer& tokenizer, std::int64_t block_size) {
  const std::vector<ChoiceText> texts = parse_choice_lines(lines);
  TaskBuilder task(tokenizer, block_size);
  for (const ChoiceText& text : texts) {
    naming(concat("line ", text.line), [&] {
      std::vector<std::int64_t> characters;
      for (const std::string& ending : text.endings) characters.push_back(characters_in(ending));
      task.add(encode_choice(text, tokenizer), characters);
    });
  }
  return task.finish();
}

ChoiceTask task_of_tokens(std::span<const std::byte> file, const Tokenizer& tokenizer,
                          std::int64_t block_size) {
  const std::vector<ChoiceTokens> choices = parse_llmc_choices(file);
  TaskBuilder task(tokenizer, block_size);
  for (std::size_t i = 0; i < choices.size(); ++i) {
    naming(concat("question ", i + 1, " of ", choices.size()), [&] {
      require_tokens_of(choices[i], tokenizer);
      std::vector<std::int64_t> characters;
      for (const auto& ending : choices[i].endings) {
        const std::string text = tokenizer.decode(ending);
        characters.push_back(characters_in(text) - (text.starts_with(' ') ? 1 : 0));
      }
      task.add(choices[i], characters);
    });
  }
  return task.finish();
}

}  // namespace

ChoiceTask load_choice_task(RankGroup& group, const std::filesystem::path& path, std::string_view flag,
                            const Tokenizer& tokenizer, std::int64_t block_size) {
  ChoiceTask task;
  std::string hash;
  agree(group, [&] {
    const MappedFile file(path, flag);
    hash = hash_of_text(file.text());
    naming(concat(flag, ": ", path), [&] {
      task = is_llmc_choice_file(file.bytes()) ? task_of_tokens(file.bytes(), tokenizer, block_size)
                                               : task_of_lines(file.text(), tokenizer, block_size);
      if (task.questions.empty()) user_error("the file has no questions");
    });
  });
  require_same(group, {{std::string(flag), concat(path, " with hash ", hash)}});
  return task;
}

}  // namespace stagegpt
