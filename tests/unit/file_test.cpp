// Reading files, their cleanup, and whether an error is the user's mistake.
#include "common/io/file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "common/base/error.h"
#include "common/io/content_hash.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  fs::path in(const std::string& name) const { return directory_.path() / name; }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : fs::directory_iterator(directory_.path()))
      all.push_back(entry.path().filename());
    std::ranges::sort(all);
    return all;
  }

  ScratchDirectory directory_;
};

TEST_F(Files, AreReadFromWhereItIsSaid) {
  const fs::path path = directory_.write("a", "0123456789");
  const FileDescriptor file = open_to_read(path, "--data");
  EXPECT_EQ(size_of(file, path, "--data"), 10);
  std::string bytes(4, '.');
  const auto read = [&](std::int64_t offset) {
    return read_at(file, offset, std::as_writable_bytes(std::span(bytes)), path);
  };
  EXPECT_EQ(read(3), 4u);
  EXPECT_EQ(bytes, "3456");
  EXPECT_EQ(read(8), 2u);
  EXPECT_EQ(bytes, "8956");
  EXPECT_EQ(read(10), 0u);
}

TEST_F(Files, AreMappedWhole) {
  EXPECT_EQ(MappedFile(directory_.write("a", "text"), "--data").text(), "text");
  EXPECT_EQ(MappedFile(directory_.write("b", "x"), "--data").text(), "x");
  EXPECT_TRUE(MappedFile(directory_.write("empty", ""), "--data").bytes().empty());
}

TEST_F(Files, AreReplacedAsAWholeOrNotAtAll) {
  replace_file(in("a"), "old");
  replace_file(in("a"), "new");
  EXPECT_EQ(read_bytes(in("a")), "new");
  EXPECT_THROW(replace_file(in("a"),
                            [](const fs::path& temporary) {
                              write_file(temporary, "half");
                              throw std::runtime_error("the disk is full");
                            }),
               std::runtime_error);
  EXPECT_EQ(read_bytes(in("a")), "new");
  EXPECT_EQ(names(), std::vector<std::string>{"a"});
  fs::create_directory(in("d"));
  EXPECT_THROW(replace_file(in("d"), "a file"), std::runtime_error);
  EXPECT_THROW(sync_directory(in("none")), std::runtime_error);
}

TEST_F(Files, GetTheDirectoriesAboveThem) {
  make_directories(in("a/b/c"));
  EXPECT_TRUE(fs::is_directory(in("a/b/c")));
  make_directories(in("a/b"));
  make_directories("");
  directory_.write("file", "");
  EXPECT_EQ(failure([&] { make_directories(in("file/d")); }),
            concat("cannot create ", in("file"), ": File exists"));
  EXPECT_TRUE(file_exists(in("a/b")));
  EXPECT_FALSE(file_exists(in("a/c")));
}

TEST_F(Files, AreKnownByWhatIsInThem) {
  const fs::path path = directory_.write("a", "one");
  const FileIdentity before = file_identity(path, "--data");
  EXPECT_EQ(before.bytes, 3);
  EXPECT_EQ(file_identity(path, "--data"), before);
  for (const auto& change :
       {FileIdentity{1, 0, 0, 0, 0}, {0, 1, 0, 0, 0}, {0, 0, 1, 0, 0}, {0, 0, 0, 1, 0}, {0, 0, 0, 0, 1}}) {
    EXPECT_NE(change, FileIdentity());
  }
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::nanoseconds(1));
  EXPECT_NE(file_identity(path, "--data"), before);
  const FileIdentity other = file_identity(directory_.write("b", "one"), "--data");
  EXPECT_EQ(other.device, before.device);
  EXPECT_NE(other.inode, before.inode);
}

TEST(FileErrors, AreTheUsersOrTheMachines) {
  for (const int error : {ENOENT, ENOTDIR, EACCES, EPERM, EISDIR, ELOOP, ENAMETOOLONG, ENXIO, ENODEV}) {
    EXPECT_TRUE(is_users_mistake(error)) << error;
    EXPECT_THROW(fail_to_open("a", "--data", error), UserError);
  }
  for (const int error : {EIO, EMFILE, ENFILE, ENOMEM, ESTALE, EINTR, 0}) {
    EXPECT_FALSE(is_users_mistake(error)) << error;
    const auto fail = [&] { fail_to_open("a", "--data", error); };
    EXPECT_EQ(failure(fail), concat("--data: cannot open \"a\": ", std::strerror(error)));
    EXPECT_THROW(refusal(fail), std::runtime_error) << "no mistake of the user";
  }
}

TEST_F(Files, ThatAreNoneAreRefused) {
  const auto refusal_of = [](const fs::path& path) { return refusal([&] { open_to_read(path, "--data"); }); };
  EXPECT_EQ(refusal_of(directory_.path()),
            concat("--data: ", directory_.path(), " is a directory, expected a file"));
  EXPECT_EQ(refusal_of("/dev/null"), "--data: \"/dev/null\" is not a regular file");
  EXPECT_EQ(refusal_of(in("none")),
            concat("--data: cannot open ", in("none"), ": No such file or directory"));
}

// Large files are read in blocks of 4 MiB, small ones in blocks of 64 KiB.
TEST_F(Files, AreReadInBlocksOfTheirSize) {
  const auto sizes = [&](std::size_t bytes, PageCache cache) {
    std::vector<std::size_t> all;
    std::string whole;
    const std::string text(bytes, 'x');
    read_blocks(directory_.write("a", text), cache, [&](std::span<const std::byte> block) {
      all.push_back(block.size());
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.data()) % 4096, 0u);
      whole.append(reinterpret_cast<const char*>(block.data()), block.size());
    });
    EXPECT_EQ(whole, text);
    return all;
  };
  constexpr std::size_t kLarge = std::size_t{4} << 20, kSmall = std::size_t{64} << 10;
  for (const PageCache cache : {PageCache::use, PageCache::avoid}) {
    EXPECT_EQ(sizes(0, cache), std::vector<std::size_t>());
    EXPECT_EQ(sizes(kSmall + 1, cache), (std::vector<std::size_t>{kSmall, 1}));
    EXPECT_EQ(sizes(kLarge - 1, cache).front(), kSmall);
    EXPECT_EQ(sizes(kLarge + 5, cache), (std::vector<std::size_t>{kLarge, 5}));
  }
}

// The published XXH3 values for empty input with seed 0, with 128 and 64 bits.
TEST(ContentHashes, AreThoseOfXxh3) {
  EXPECT_EQ(hash_of_text(""), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(block_hash({}), 0x2d06800538d394c2u);
}

}  // namespace
}  // namespace stagegpt::test
