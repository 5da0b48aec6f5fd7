// Token shards in llm.c's format, and sequences of tokens that span several shards.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "common/base/error.h"
#include "common/data/batch_stream.h"
#include "common/data/token_sequence.h"
#include "common/io/content_hash.h"
#include "tests/data/shards.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(TokenShard, HasTheBytesOfLlmc) {
  const ScratchDirectory directory;
  write_shard(directory.path() / "a.bin", {1, 65535});
  const std::string bytes = read_bytes(directory.path() / "a.bin");
  ASSERT_EQ(bytes.size(), 1024u + 4);
  std::int32_t header[256];
  std::memcpy(header, bytes.data(), sizeof header);
  EXPECT_EQ(header[0], 20240520);
  EXPECT_EQ(header[1], 1);
  EXPECT_EQ(header[2], 2);
  for (int i = 3; i < 256; ++i) EXPECT_EQ(header[i], 0);
  EXPECT_EQ(bytes.substr(1024), std::string("\x01\x00\xff\xff", 4));

  write_shard(directory.path() / "b.bin", {1, 65536}, 4);
  const std::string wide = read_bytes(directory.path() / "b.bin");
  std::memcpy(header, wide.data(), sizeof header);
  EXPECT_EQ(header[0], 20240801);
  EXPECT_EQ(header[1], 7);
  EXPECT_EQ(wide.substr(1024), std::string("\x01\x00\x00\x00\x00\x00\x01\x00", 8));
}

TEST(TokenShard, TakesTheBytesThatTheVocabularyNeeds) {
  EXPECT_EQ(token_bytes(50257), 2);
  EXPECT_EQ(token_bytes(65536), 2);
  EXPECT_EQ(token_bytes(65537), 4);
}

TEST(TokenShard, LooksLikeNoneUntilItIsFinished) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.bin";
  TokenShardWriter writer(path, 2);
  writer.append(Ids{1, 2, 3});
  EXPECT_THROW(TokenShard(path, "--data"), UserError);
  writer.finish();
  EXPECT_EQ(TokenShard(path, "--data").size(), 3);
}

class TokenShardRefuses : public testing::Test {
 protected:
  void refuse(const std::string& bytes, const std::string& says) const {
    expect_refusal([&] { TokenShard(directory.write("bad.bin", bytes), "--data"); }, says);
  }
  std::string with_header(std::size_t index, std::int32_t value) const {
    write_shard(directory.path() / "good.bin", {1, 2, 3});
    std::string bytes = read_bytes(directory.path() / "good.bin");
    bytes.replace(index * sizeof value, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    return bytes;
  }
  ScratchDirectory directory;
};

TEST_F(TokenShardRefuses, WrongFiles) {
  refuse("", "0 bytes, fewer than the header");
  refuse(std::string(1023, 'x'), "fewer than the header");
  refuse(with_header(0, 20240326), "is not a token shard: it begins with 20240326");
  refuse(with_header(1, 2), "has version 2, expected 1");
  refuse(with_header(2, 4), "its header specifies 4 tokens");
  refuse(with_header(2, 2), "its header specifies 2 tokens");
  refuse(with_header(2, -1), "its header specifies -1 tokens");
  refuse(with_header(2, INT32_MAX), "its header specifies 2147483647 tokens");
  refuse(with_header(2, 3) + "x", "has 1031 bytes");  // an odd length
}

TEST_F(TokenShardRefuses, TokensOutsideTheVocabulary) {
  for (const int bytes : {2, 4}) {
    write_shard(directory.path() / "a.bin", {1, 7, 3}, bytes);
    const TokenShard shard(directory.path() / "a.bin", "--data");
    EXPECT_NO_THROW(shard.verify(8));
    EXPECT_THROW(shard.verify(7), UserError);
  }
}

// The wrong token is not in the part of the file that is read first.
TEST_F(TokenShardRefuses, ATokenOutsideTheVocabularyByItsPlace) {
  std::vector<std::int32_t> ids(2'200'000, 3);
  ids[2'150'000] = 7;
  write_shard(directory.path() / "a.bin", ids);
  const TokenShard shard(directory.path() / "a.bin", "--data");
  expect_refusal([&] { shard.verify(7); }, "token 2150000 is 7, outside the vocabulary of 7");
}

// A shard of several blocks.
class OpenShard : public testing::Test {
 protected:
  static constexpr std::int64_t kSize =
      100'000;  // blocks of 32,768 tokens; the header takes the place of 512 tokens

  OpenShard() {
    for (std::int64_t i = 0; i < kSize; ++i) ids_.push_back(static_cast<std::int32_t>(i * 7 % 60'000));
    write_shard(path_, ids_);
    tokens_.append(verified_shard(path_));
  }
  void change(std::int64_t token) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(1024 + 2 * token);
    file.put('\x7f');
  }
  // Expects a runtime error, not a UserError: only the next start can tell whether the user changed the data.
  void expect_failure(std::int64_t first, std::int64_t count, const std::string& says) const {
    try {
      tokens_.read(first, count);
      ADD_FAILURE() << "no error, expected: " << says;
    } catch (const UserError& error) {
      ADD_FAILURE() << "user's: " << error.what();
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_.string()), std::string::npos) << error.what();
    }
  }

  ScratchDirectory directory_;
  const std::filesystem::path path_ = directory_.path() / "a.bin";
  Ids ids_;
  TokenSequence tokens_;
};

TEST_F(OpenShard, IsReadAcrossBlocks) {
  for (const std::int64_t first : {0, 1, 32'255, 32'256, 32'257, 65'023, 65'024, 99'000}) {
    for (const std::int64_t count : {0, 1, 2, 1000}) {
      const Ids expected(ids_.begin() + first, ids_.begin() + first + count);
      EXPECT_EQ(tokens_.read(first, count), expected) << first;
    }
  }
  EXPECT_EQ(tokens_.read(0, kSize), ids_);
}

TEST_F(OpenShard, IsComparedWithWhatWasVerified) {
  change(40'000);
  expect_failure(40'000, 1, "has changed since the run began, or is damaged: bytes 65536 to 131071");
  expect_failure(32'256, 1, "bytes 65536 to 131071");  // the block's first token
  expect_failure(65'023, 1, "bytes 65536 to 131071");  // the block's last token
  expect_failure(0, kSize, "bytes 65536 to 131071");
  EXPECT_EQ(tokens_.read(32'255, 1), Ids{ids_[32'255]});
  EXPECT_EQ(tokens_.read(65'024, 1), Ids{ids_[65'024]});
}

TEST_F(OpenShard, ThatHasBecomeShorterIsNamed) {
  std::filesystem::resize_file(path_, 150'000);
  expect_failure(80'000, 10, "it was truncated after it was opened, when it had 201024 bytes");
  EXPECT_EQ(tokens_.read(100, 1), Ids{ids_[100]});
}

// A shard is read only against hashes of all its blocks.
TEST_F(OpenShard, MustBeVerifiedFirst) {
  TokenShard shard(path_, "--data");
  Ids one(1);
  EXPECT_EQ(internal_error([&] { shard.read(40'000, one); }), "token shard: block 1 of 0 that are known");
  EXPECT_EQ(internal_error([&] {
              shard.expect({.hash = "", .block_hashes = {1, 2}});
            }),
            "token shard: 2 hashes for 4 blocks");
}

// An open shard remains readable after the file has been deleted.
TEST_F(OpenShard, OutlivesItsName) {
  std::filesystem::remove(path_);
  EXPECT_EQ(tokens_.read(50'000, 3), (Ids{ids_[50'000], ids_[50'001], ids_[50'002]}));
}

// Another rank may have read a different file: a change of the first or last block must be found.
TEST_F(OpenShard, MustBeginAndEndAsExpected) {
  const ShardContent content = TokenShard(path_, "--data").verify(60'000);
  for (const std::int64_t token : {3, 99'999}) {
    write_shard(path_, ids_);
    TokenShard shard(path_, "--data");
    EXPECT_NO_THROW(shard.expect(content));
    change(token);
    EXPECT_THROW(shard.expect(content), UserError) << token;
  }
}

TEST_F(OpenShard, IsKnownByItsHashAndItsPart) {
  using Of = TokenIdentity::Of;
  const TokenSequence same = [&] {
    write_shard(directory_.path() / "copy.bin", ids_);
    TokenSequence tokens;
    tokens.append(verified_shard(directory_.path() / "copy.bin"));
    return tokens;
  }();
  EXPECT_EQ(tokens_.identity().of, Of::shards);
  EXPECT_EQ(tokens_.identity(), same.identity());
  EXPECT_NE(tokens_.slice(0, 100).identity(), tokens_.identity());
  EXPECT_NE(tokens_.slice(0, 100).identity(), tokens_.slice(1, 100).identity());
  EXPECT_NE(tokens_.slice(0, 100).identity(), tokens_.slice(0, 99).identity());
  EXPECT_EQ(TokenSequence(ids_).identity(), (TokenIdentity{Of::ids, hash_of_tokens(tokens_)}));
  TokenSequence behind_nothing;
  behind_nothing.append(std::vector<std::int32_t>(), 300);
  behind_nothing.append(verified_shard(path_));
  EXPECT_EQ(behind_nothing.identity(), same.identity());
  change(5);
  TokenSequence changed;
  changed.append(verified_shard(path_));
  EXPECT_NE(changed.identity(), same.identity());
}

TEST(BatchStream, FetchesTheNextBatchAhead) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.bin";
  // A batch that was fetched ahead is available even after the file has become empty. The time for fetching
  // depends on the machine, so the test tries increasing times.
  for (int milliseconds = 1; milliseconds < 10'000; milliseconds *= 4) {
    write_shard(path, Ids(100, 7));
    TokenSequence tokens;
    tokens.append(verified_shard(path));
    const DataLoader loader(tokens, 10, 1);
    BatchStream stream(loader, {.batch_size = 2});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::filesystem::resize_file(path, 0);
    try {
      EXPECT_EQ(stream.next().batch.ids, Ids(20, 7));
      return;
    } catch (const std::runtime_error&) {
    }
  }
  ADD_FAILURE() << "the batch was not fetched until it was asked for";
}

TEST(TokenSequence, BeyondTwoGigabytes) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "large.bin";
  constexpr std::int64_t kTokens =
      1'200'000'000;  // 2.4 GB; the sparse file takes little more than one page on disk
  write_shard(path, {5});
  std::filesystem::resize_file(path, 1024 + 2 * kTokens);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto count = static_cast<std::int32_t>(kTokens);
    file.seekp(8);
    file.write(reinterpret_cast<const char*>(&count), sizeof count);
    const std::uint16_t last = 77;
    file.seekp(1024 + 2 * (kTokens - 1));
    file.write(reinterpret_cast<const char*>(&last), sizeof last);
  }
  // Hashing the whole file would take seconds. Only the hashes of blocks that are read are needed.
  const auto hash_at = [&](std::int64_t block) {
    std::ifstream file(path, std::ios::binary);
    file.seekg(block * TokenShard::kBlockBytes);
    std::string bytes(TokenShard::kBlockBytes, '\0');
    file.read(bytes.data(), std::ssize(bytes));
    return block_hash(std::as_bytes(std::span(bytes.data(), static_cast<std::size_t>(file.gcount()))));
  };
  const std::int64_t last_block = (1024 + 2 * kTokens - 1) / TokenShard::kBlockBytes;
  ShardContent content{"", std::vector<std::uint64_t>(static_cast<std::size_t>(last_block + 1))};
  content.block_hashes.front() = hash_at(0);
  content.block_hashes.back() = hash_at(last_block);
  const auto shard = std::make_shared<TokenShard>(path, "--data");
  shard->expect(content);
  TokenSequence tokens;
  tokens.append(shard);
  tokens.append(shard);  // 2.4e9 tokens: the count does not fit in 31 bits
  EXPECT_EQ(tokens.size(), 2 * kTokens);
  EXPECT_EQ(tokens.read(kTokens - 1, 2), (Ids{77, 5}));
  EXPECT_EQ(tokens.read(2 * kTokens - 2, 2), (Ids{0, 77}));
}

TEST(TokenSequence, HoldsLargeIdsInMemory) {
  EXPECT_EQ(TokenSequence(Ids{70000, 3}).read(0, 2), (Ids{70000, 3}));
}

TEST(TokenSequence, SaysOfWhatASliceIsNotAPart) {
  const TokenSequence tokens(Ids{5, 6, 7});
  EXPECT_EQ(internal_error([&] { tokens.slice(1, 2); }), "");
  EXPECT_EQ(internal_error([&] { tokens.slice(1, 4); }), "tokens: slice of 4 from 1 of 3");
}

RC_GTEST_PROP(TokenSequence, ReadsAcrossSegments, ()) {
  const ScratchDirectory directory;
  TokenSequence tokens;
  Ids all;
  const auto lengths = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 6));
  for (const int length : lengths) {
    Ids part(static_cast<std::size_t>(length));
    std::iota(part.begin(), part.end(), static_cast<std::int32_t>(all.size()));
    all.insert(all.end(), part.begin(), part.end());
    if (length % 3 == 0) {
      tokens.append(part, 100);  // 16 bits in memory
    } else if (length % 3 == 1) {
      tokens.append(part, 100000);  // 32 bits
    } else {
      const auto path = directory.path() / std::to_string(all.size());
      write_shard(path, part);
      tokens.append(verified_shard(path));
    }
  }
  const auto size = static_cast<std::int64_t>(all.size());
  RC_ASSERT(tokens.size() == size);
  const std::int64_t first = *rc::gen::inRange<std::int64_t>(0, size + 1);
  const std::int64_t count = *rc::gen::inRange<std::int64_t>(0, size - first + 1);
  const Ids expected(all.begin() + first, all.begin() + first + count);
  RC_ASSERT(tokens.read(first, count) == expected);
  const TokenSequence part = tokens.slice(first, count);
  RC_ASSERT(part.size() == count);
  RC_ASSERT(part.read(0, count) == expected);
}

}  // namespace
}  // namespace stagegpt::test
