// Token shards in llm.c's format, and sequences of tokens that lie in several of them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "common/data/batch_stream.h"
#include "common/data/token_sequence.h"
#include "common/error.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

using Ids = std::vector<std::int32_t>;

void write_shard(const std::filesystem::path& path, const Ids& ids, int bytes = 2) {
  TokenShardWriter writer(path, bytes);
  writer.append(ids);
  writer.finish();
}

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
    try {
      const TokenShard shard(directory.write("bad.bin", bytes), "--data");
      ADD_FAILURE() << "accepted, expected: " << says;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
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
  refuse(with_header(0, 20240326), "is no token shard: it begins with 20240326");
  refuse(with_header(1, 2), "has version 2, expected 1");
  refuse(with_header(2, 4), "its header announces 4 tokens");
  refuse(with_header(2, 2), "its header announces 2 tokens");
  refuse(with_header(2, -1), "its header announces -1 tokens");
  refuse(with_header(2, INT32_MAX), "its header announces 2147483647 tokens");
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

TEST_F(TokenShardRefuses, ToBeReadOnceItHasChanged) {
  const auto path = directory.path() / "a.bin";
  for (const bool shorter : {false, true}) {
    write_shard(path, {1, 2, 3});
    TokenSequence tokens;
    tokens.append(std::make_shared<const TokenShard>(path, "--data"));
    EXPECT_EQ(tokens.read(1, 2), (Ids{2, 3}));
    if (shorter) {
      std::filesystem::resize_file(path, 1024);
    } else {
      std::filesystem::last_write_time(path,
                                       std::filesystem::last_write_time(path) + std::chrono::seconds(1));
    }
    EXPECT_THROW(tokens.read(1, 2), UserError);
  }
}

TEST(BatchStream, FetchesTheNextBatchAhead) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "a.bin";
  // What has been fetched can be had when its file is gone. How soon that is depends on the machine.
  for (int milliseconds = 1; milliseconds < 10'000; milliseconds *= 4) {
    write_shard(path, Ids(100, 7));
    TokenSequence tokens;
    tokens.append(std::make_shared<const TokenShard>(path, "--data"));
    const DataLoader loader(tokens, 10, 1);
    BatchStream stream(loader, {.batch_size = 2});
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    std::filesystem::remove(path);
    try {
      EXPECT_EQ(stream.next().batch.ids, Ids(20, 7));
      return;
    } catch (const UserError&) {
    }
  }
  ADD_FAILURE() << "the batch was not fetched until it was asked for";
}

TEST(TokenSequence, BeyondTwoGigabytes) {
  const ScratchDirectory directory;
  const auto path = directory.path() / "large.bin";
  constexpr std::int64_t kTokens =
      1'200'000'000;  // 2.4 GB, of which the file system stores little more than one page
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
  const auto shard = std::make_shared<const TokenShard>(path, "--data");
  TokenSequence tokens;
  tokens.append(shard);
  tokens.append(shard);  // 2.4e9 tokens: more than 32 bits count
  EXPECT_EQ(tokens.size(), 2 * kTokens);
  EXPECT_EQ(tokens.read(kTokens - 1, 2), (Ids{77, 5}));
  EXPECT_EQ(tokens.read(2 * kTokens - 2, 2), (Ids{0, 77}));
}

TEST(TokenSequence, HoldsLargeIdsInMemory) {
  EXPECT_EQ(TokenSequence(Ids{70000, 3}).read(0, 2), (Ids{70000, 3}));
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
      tokens.append(std::make_shared<const TokenShard>(path, "--data"));
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
