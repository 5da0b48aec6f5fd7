// Files that are written and read in blocks, on a disk and in memory.
#include "common/io/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "tests/support/file_size_limit.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlock = OutputFile::kBlock;

std::vector<std::byte> numbered_bytes(std::size_t size) {
  constexpr std::size_t kPrime = 251;
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % kPrime + i / kBlock);
  return bytes;
}

std::vector<std::byte> bytes_in(const fs::path& path, PageCache cache) {
  std::vector<std::byte> bytes;
  read_blocks(path, cache, [&](auto block) { bytes.insert(bytes.end(), block.begin(), block.end()); });
  return bytes;
}

// Whether the directory's file system supports O_DIRECT, which bypasses the page cache.
bool has_direct_files(const fs::path& directory) {
  const FileDescriptor file(open((directory / "probe").c_str(), O_WRONLY | O_CREAT | O_DIRECT, 0600));
  return file.is_open();
}

std::size_t pages_in_cache(const fs::path& path) {
  const MappedFile file(path, "test");
  const std::span<const std::byte> bytes = file.bytes();
  std::vector<unsigned char> pages((bytes.size() + 4095) / 4096);
  mincore(const_cast<std::byte*>(bytes.data()), bytes.size(), pages.data());
  return static_cast<std::size_t>(std::ranges::count_if(pages, [](unsigned char page) { return page & 1; }));
}

TEST(OutputFile, HasWhatWasWrittenInPiecesOfAnySize) {
  const ScratchDirectory scratch;
  for (const fs::path& directory : {scratch.path(), fs::path("/dev/shm")}) {
    const fs::path path = directory / "stagegpt.output_file_test";
    for (const std::size_t size : {std::size_t{0}, std::size_t{5}, OutputFile::kSmallBlock,
                                   OutputFile::kSmallBlock + 1, kBlock - 1, kBlock, 3 * kBlock + 4099}) {
      const std::vector<std::byte> bytes = numbered_bytes(size);
      for (const std::size_t piece : {std::size_t{1000003}, kBlock, 4 * kBlock}) {
        OutputFile file(path);
        for (std::size_t begin = 0; begin < size; begin += piece) {
          file.write(std::span(bytes).subspan(begin, std::min(piece, size - begin)));
        }
        file.sync();
        EXPECT_TRUE(bytes_in(path, PageCache::use) == bytes) << path << " " << size << " by " << piece;
        EXPECT_TRUE(bytes_in(path, PageCache::avoid) == bytes) << path << " " << size << " by " << piece;
      }
    }
    fs::remove(path);
  }
}

TEST(OutputFile, RewoundHasTheLastOfWhatWasWritten) {
  const ScratchDirectory scratch;
  const fs::path path = scratch.path() / "file";
  std::vector<std::byte> expected = numbered_bytes(3 * kBlock + 77);
  OutputFile file(path);
  file.write(expected);
  for (const std::size_t size : {std::size_t{1024}, kBlock + 13}) {
    const std::vector<std::byte> beginning(size, std::byte{0xee});
    file.rewind();
    file.write(beginning);
    std::ranges::copy(beginning, expected.begin());
  }
  file.sync();
  EXPECT_TRUE(bytes_in(path, PageCache::use) == expected);
}

TEST(OutputFile, LeavesThePageCacheToOthers) {
  const ScratchDirectory scratch;
  if (!has_direct_files(scratch.path())) GTEST_SKIP() << "no O_DIRECT in " << scratch.path();
  const fs::path path = scratch.path() / "file";
  OutputFile file(path);
  file.write(numbered_bytes(2 * kBlock));
  file.sync();
  EXPECT_EQ(pages_in_cache(path), 0);
  bytes_in(path, PageCache::avoid);
  EXPECT_EQ(pages_in_cache(path), 0);
  bytes_in(path, PageCache::use);
  EXPECT_GT(pages_in_cache(path), 0);
}

// The write that reaches the limit is short and ends inside a sector. The rest of the block is then not
// aligned.
TEST(OutputFile, ThatMeetsALimitHasAllUpToItAndFails) {
  const ScratchDirectory scratch;
  const fs::path path = scratch.path() / "file";
  const std::vector<std::byte> bytes = numbered_bytes(4 * kBlock);
  const std::size_t limit = kBlock + kBlock / 2 + 100;
  const auto write = [&] {
    const FileSizeLimit limited(limit);
    OutputFile file(path);
    file.write(bytes);
    file.sync();
  };
  const std::string why = failure(write);
  EXPECT_NE(why.find(path.string()), std::string::npos) << why;
  EXPECT_TRUE(std::ranges::equal(bytes_in(path, PageCache::use), std::span(bytes).first(limit)));
}

TEST(OutputFile, OnAFullDiskFails) {
  const auto write = [](std::size_t size) {
    OutputFile file("/dev/full");
    file.write(numbered_bytes(size));
    file.sync();
  };
  EXPECT_THROW(write(10), std::runtime_error);
  EXPECT_THROW(write(kBlock), std::runtime_error);
  EXPECT_THROW(write(5 * kBlock), std::runtime_error);
}

TEST(AppendFile, WritesLaterWhatItCouldNot) {
  const ScratchDirectory directory;
  AppendFile file(directory.path() / "log");
  {
    const FileSizeLimit full(10);
    EXPECT_TRUE(file.add("123456"));
    EXPECT_FALSE(file.add("789abc"));
    EXPECT_FALSE(file.add("def"));
  }
  file.sync();
  EXPECT_EQ(read_bytes(directory.path() / "log"), "123456789abcdef");
}

TEST(ReadBlocks, NamesWhatCannotBeRead) {
  const ScratchDirectory scratch;
  for (const fs::path& path : {scratch.path() / "missing", scratch.path()}) {
    const std::string why = failure([&] { bytes_in(path, PageCache::avoid); });
    EXPECT_NE(why.find(path.string()), std::string::npos) << why;
  }
}

}  // namespace
}  // namespace stagegpt::test
