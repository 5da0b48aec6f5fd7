// Ranks verify token shards together, and compare the hashes of what they read.
#include <gtest/gtest.h>

#include <fstream>

#include "common/comm/agreement.h"
#include "common/data/token_shard.h"
#include "common/io/content_hash.h"
#include "tests/data/shards.h"
#include "tests/support/mpi_ranks.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

constexpr std::int64_t kVocabSize = 60'000, kTokens = 100'000;
constexpr std::int64_t kMiddle = 50'000;  // neither in the first block nor in the last

// Every rank has its own copies of the shards. There are as many shards as ranks.
class VerifyShards : public testing::Test {
 protected:
  VerifyShards() {
    for (int i = 0; i < ranks().size(); ++i) {
      std::vector<std::int32_t> ids(kTokens, 7);
      ids[static_cast<std::size_t>(kMiddle)] = i;
      write_shard(path_of(i), ids);
    }
  }
  std::filesystem::path path_of(int shard) const { return directory_.path() / concat(shard, ".bin"); }
  // Opens the shards and verifies them together with the other ranks.
  std::vector<std::shared_ptr<TokenShard>> verified() {
    std::vector<std::shared_ptr<TokenShard>> shards;
    for (int i = 0; i < ranks().size(); ++i)
      shards.push_back(std::make_shared<TokenShard>(path_of(i), "--data"));
    verify_shards(ranks(), shards, kVocabSize, "--data");
    return shards;
  }
  void write_token(int shard, std::int64_t token, std::uint16_t id) const {
    std::fstream file(path_of(shard), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1024 + 2 * token);
    file.write(reinterpret_cast<const char*>(&id), sizeof id);
  }

  ScratchDirectory directory_;
};

std::int32_t token_of(const TokenShard& shard, std::int64_t token) {
  std::int32_t id = 0;
  shard.read(token, {&id, 1});
  return id;
}

TEST_F(VerifyShards, tells_all_ranks_what_they_hold) {
  const auto shards = verified();
  for (int i = 0; i < ranks().size(); ++i) {
    EXPECT_EQ(shards[static_cast<std::size_t>(i)]->hash(), hash_of_file(path_of(i)));
    EXPECT_EQ(token_of(*shards[static_cast<std::size_t>(i)], kMiddle), i);
  }
}

// The last rank verifies the last shard, but rank 0's copy of this shard is damaged.
TEST_F(VerifyShards, finds_damage_of_a_copy_when_it_is_read) {
  if (ranks().size() == 1) GTEST_SKIP() << "there are no others";
  const int last = ranks().size() - 1;
  if (ranks().is_root()) write_token(last, kMiddle, 65'535);
  const auto shards = verified();
  const TokenShard& shard = *shards.back();
  EXPECT_EQ(token_of(shard, 3), 7);
  if (ranks().is_root()) {
    EXPECT_THROW(token_of(shard, kMiddle), std::runtime_error);
  } else {
    EXPECT_EQ(token_of(shard, kMiddle), last);
  }
}

TEST_F(VerifyShards, refuses_tokens_outside_the_vocabulary_on_all_ranks) {
  const int last = ranks().size() - 1;
  if (ranks().rank() == last) write_token(last, kMiddle, 65'535);
  expect_refusal([&] { verified(); }, "is 65535, outside the vocabulary of 60000");
}

TEST_F(VerifyShards, refuses_other_beginnings_and_sizes) {
  if (ranks().size() == 1) GTEST_SKIP() << "there are no others";
  if (ranks().rank() == 1) write_token(0, 0, 8);
  EXPECT_THROW(verified(), AgreedUserError);
  if (ranks().rank() == 1) write_shard(path_of(0), {1, 2, 3});
  const std::string says = message_of<AgreedUserError>([&] { verified(); }),
                    tokens = concat(kTokens * (ranks().size() - 1) + 3, " tokens, with hash ");
  EXPECT_NE(says.find(concat("--data: ", ranks().size(), " shards of ", tokens)), std::string::npos) << says;
  EXPECT_NE(says.find(" of their sizes on rank 1"), std::string::npos) << says;
}

}  // namespace
}  // namespace stagegpt::test
