// A signal stops reading and tokenizing.
#include <gtest/gtest.h>

#include "common/data/tokenize.h"
#include "tests/data/make_tokenizers.h"
#include "tests/data/shards.h"
#include "tests/support/program.h"
#include "tests/support/stop_request.h"

namespace stagegpt::test {
namespace {

const auto kGivenUp = testing::ExitedWithCode(kExitStopped);

TEST(StopWhile, TextIsTokenised) {
  const ScratchDirectory directory;
  const TextSource text({directory.write("text.txt", kText)}, "--data");
  const auto tokenizer = small_bpe();
  const auto tokenise = [&] { tokenize(text, text.all(), *tokenizer, {}, [](const auto&) {}); };
  EXPECT_EXIT(exit_as_stopped(tokenise), kGivenUp, "");
  tokenise();
}

TEST(StopWhile, MergesAreLearnt) {
  const PieceCounts counts = count_pieces(Splitter::gpt2(), std::string(kText) + kText);
  const auto pairs_are_counted = [&] { train_merges(counts.sorted(), 0); };
  const auto a_merge_is_chosen = [] { train_merges({}, 1); };
  EXPECT_EXIT(exit_as_stopped(pairs_are_counted), kGivenUp, "");
  EXPECT_EXIT(exit_as_stopped(a_merge_is_chosen), kGivenUp, "");
}

TEST(StopWhile, ShardsAreVerified) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.bin";
  write_shard(path, counting(1000));
  const TokenShard shard(path, "--data");
  EXPECT_EXIT(exit_as_stopped([&] { shard.verify(1000); }), kGivenUp, "");
}

}  // namespace
}  // namespace stagegpt::test
