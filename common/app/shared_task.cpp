#include "common/app/shared_task.h"

#include <string>

#include "common/comm/agreement.h"
#include "common/io/content_hash.h"
#include "common/io/file.h"

namespace stagegpt {

ChoiceTask load_shared_choice_task(RankGroup& group, const std::filesystem::path& path, std::string_view flag,
                                   const Tokenizer& tokenizer, std::int64_t block_size) {
  ChoiceTask task;
  std::string hash;
  agree(group, [&] {
    task = load_choice_task(path, flag, tokenizer, block_size);
    if (group.size() > 1) hash = hash_of_text(MappedFile(path, flag).text());
  });
  require_same(group, {{std::string(flag), concat(path, " with hash ", hash)}});
  return task;
}

}  // namespace stagegpt
