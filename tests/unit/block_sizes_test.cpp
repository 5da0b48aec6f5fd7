// Work that is done in blocks, at sizes around one block and above two blocks, so that later blocks are
// tested too. The ops have their own cases (tests/ops/op_cases.cpp). docs/testing.md lists all blocks.
#include <gtest/gtest.h>

#include <numeric>

#include "common/checkpoint/tensor_files.h"
#include "common/data/token_sequence.h"
#include "common/data/utf8.h"
#include "common/io/content_hash.h"
#include "common/io/file.h"
#include "stage0_serial/cpu_backend.h"
#include "tests/support/program.h"
#include "tests/support/tensors.h"

namespace stagegpt::test {
namespace {

std::vector<std::size_t> around(std::size_t block) { return {block - 1, block, block + 1, 2 * block + 3}; }

std::string random_bytes(std::size_t n) {
  std::string bytes(n, '\0');
  for (std::size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(random_word({3, 1, 4}, i));
  return bytes;
}

// The hash of tokens is the hash of the ids' bytes (int32), for any number of blocks.
TEST(BlockSizes, AHashOfTokensIsOfAllOfThem) {
  for (const std::size_t size : around(1 << 18)) {
    std::vector<std::int32_t> ids(size);
    std::iota(ids.begin(), ids.end(), 0);
    const std::string_view bytes(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof ids[0]);
    EXPECT_EQ(hash_of_tokens(TokenSequence(ids)), hash_of_text(bytes)) << size;
  }
}

TEST(BlockSizes, AFileIsReadWhole) {
  const ScratchDirectory directory;
  const std::string all = random_bytes((8 << 20) + 3);
  for (const std::size_t block : {64 << 10, 4 << 20}) {
    for (const std::size_t size : around(block)) {
      const std::string path = directory.write("file", all.substr(0, size));
      EXPECT_EQ(hash_of_file(path), hash_of_text(all.substr(0, size))) << size;
      ContentHash uncached;
      read_blocks(path, PageCache::avoid, [&](std::span<const std::byte> part) { uncached.add(part); });
      EXPECT_EQ(uncached.hexadecimal(), hash_of_text(all.substr(0, size))) << size;
    }
  }
}

// A different value for each element i, and for each of eight parameters p. f32 represents it exactly.
float element(std::size_t p, std::int64_t i) {
  return static_cast<float>(8 * i + static_cast<std::int64_t>(p % 8));
}

// Tensors are written in pieces of 2^20 elements, and transposed in tiles of 32 by 32.
TEST(BlockSizes, AFileOfParametersHasAllElements) {
  ParameterTable table;
  table.add({"wte.weight", {(1 << 19) + 1, 2}, (1 << 19) + 1});
  table.add({"wpe.weight", {1 << 19, 2}, 1 << 19});
  for (const std::int64_t rows : {31, 32, 33, 67}) {
    for (const std::int64_t columns : {31, 32, 33, 67})
      table.add({concat("h.0.", rows, '.', columns), {rows, columns}, rows});
  }
  const ParameterValues values = [](std::size_t p, std::int64_t begin, std::span<float> out) {
    for (std::size_t k = 0; k < out.size(); ++k) out[k] = element(p, begin + static_cast<std::int64_t>(k));
  };
  const ScratchDirectory directory;
  write_parameters(directory.path() / "file", table, {{"", values}});
  const MappedFile file(directory.path() / "file", "--file");
  const SafetensorsViews views = parse_safetensors(file.bytes());
  for (std::size_t p = 0; p < table.size(); ++p) {
    const Shape& shape = table[p].shape;
    const bool turned = p > 1;
    std::vector<float> stored(static_cast<std::size_t>(shape.numel()));
    to_floats(views.at(table[p].name), 0, stored);
    int wrong = 0;
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      const std::int64_t row = i / shape[1], column = i % shape[1];
      wrong += stored[turned ? column * shape[0] + row : i] != element(p, i);
    }
    EXPECT_EQ(wrong, 0) << table[p].name;
    EXPECT_EQ(elements_of(safetensors_values(table, views, ""), table, p), elements_of(values, table, p))
        << table[p].name;
  }
}

// UTF-8 is checked eight bytes at a time.
TEST(BlockSizes, AByteThatIsNoUtf8IsFoundAnywhere) {
  for (std::size_t size = 1; size < 36; ++size) {
    EXPECT_EQ(utf8_prefix(std::string(size, 'a')), size);
    for (std::size_t at = 0; at < size; ++at) {
      std::string text(size, 'a');
      text[at] = '\xff';
      EXPECT_EQ(utf8_prefix(text), at) << size;
    }
  }
}

}  // namespace
}  // namespace stagegpt::test
