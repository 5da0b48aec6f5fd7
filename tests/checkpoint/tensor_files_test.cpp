// Tensors that are divided among several files, in Hugging Face's naming.
#include "common/checkpoint/tensor_files.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/checkpoint/raw_safetensors.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

namespace fs = std::filesystem;

// A table with a large embedding, as GPT-2 has, and a weight that is transposed in files.
ParameterTable small_table() {
  ParameterTable table;
  table.add({"wte.weight", {40, 3}, 40});
  table.add({"h.0.ln_1.weight", {3}, 3});
  table.add({"h.0.c_fc.weight", {7, 3}, 7});
  table.add({"h.0.c_fc.bias", {7}, 7});
  table.add({"ln_f.weight", {3}, 3});
  return table;
}

// Element n of parameter i is 100 i + n. `first` is the number of the table's first parameter.
ParameterValues numbered(std::size_t first = 0) {
  return [first](std::size_t i, std::int64_t begin, std::span<float> out) {
    std::iota(out.begin(), out.end(), static_cast<float>(100 * (first + i)) + static_cast<float>(begin));
  };
}

// Writes the table in two files, with an index as that of PreTrainedModel.save_pretrained().
void write_two_files(const fs::path& directory) {
  const ParameterTable table = small_table();
  ParameterTable first, second;
  for (std::size_t i = 0; i < table.size(); ++i) (i < 2 ? first : second).add(table[i]);
  write_parameters(directory / "x-00001-of-00002.safetensors", first, {{"m.", numbered()}});
  write_parameters(directory / "x-00002-of-00002.safetensors", second, {{"m.", numbered(2)}});
  write_file(directory / "x.safetensors.index.json", R"({
    "metadata": {"total_size": 616},
    "weight_map": {
      "m.h.0.c_fc.bias": "x-00002-of-00002.safetensors", "m.h.0.c_fc.weight": "x-00002-of-00002.safetensors",
      "m.h.0.ln_1.weight": "x-00001-of-00002.safetensors", "m.ln_f.weight": "x-00002-of-00002.safetensors",
      "m.wte.weight": "x-00001-of-00002.safetensors"}})");
}

TEST(TensorFiles, AreReadInAnyRange) {
  const ScratchDirectory scratch;
  const ParameterTable table = small_table();
  write_two_files(scratch.path());
  // Stored as (in,out): its first two elements are (0,0) and (1,0) of the weight (7,3).
  const RawTensor stored =
      read_safetensors(scratch.path() / "x-00002-of-00002.safetensors").at("m.h.0.c_fc.weight");
  EXPECT_EQ(stored.shape, std::vector<std::int64_t>({3, 7}));
  float second = 0;
  std::memcpy(&second, stored.bytes.data() + sizeof second, sizeof second);
  EXPECT_EQ(second, 203);

  TensorFiles files(scratch.path(), "x");
  const ParameterValues values = safetensors_values(table, files.tensors(), "m.");
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::int64_t numel = table[i].shape.numel();
    for (std::int64_t begin = 0; begin <= numel; ++begin) {
      for (std::int64_t end = begin; end <= numel; end += i == 2 ? 1 : 5) {
        std::vector<float> got(static_cast<std::size_t>(end - begin)), expected(got.size());
        values(i, begin, got);
        numbered()(i, begin, expected);
        ASSERT_EQ(got, expected) << table[i].name << ' ' << begin << ' ' << end;
      }
    }
  }
}

TEST(TensorFiles, AreRefusedWhereOneIsMissing) {
  const ScratchDirectory scratch;
  write_two_files(scratch.path());
  std::filesystem::remove(scratch.path() / "x-00002-of-00002.safetensors");
  const std::string refused = refusal([&] { TensorFiles(scratch.path(), "x"); });
  EXPECT_NE(refused.find("x.safetensors.index.json: cannot open "), std::string::npos) << refused;
  EXPECT_NE(refused.find("x-00002-of-00002.safetensors\": No such file"), std::string::npos) << refused;
}

// Pieces are the same on any division of the arena, and leave out its padding.
TEST(Pieces, OfTwoPartsAreThoseOfTheWhole) {
  const ParameterTable table = small_table();  // offsets 0, 128, 192, 256, 320
  EXPECT_EQ(table.pieces({0, 400}, 100),
            std::vector<Piece>({{0, 0, 100}, {0, 100, 120}, {1, 0, 3}, {2, 0, 21}, {3, 0, 7}, {4, 0, 3}}));
  EXPECT_EQ(table.pieces({0, 200}, 1000), std::vector<Piece>({{0, 0, 120}, {1, 0, 3}, {2, 0, 8}}));
  EXPECT_EQ(table.pieces({200, 400}, 1000), std::vector<Piece>({{2, 8, 21}, {3, 0, 7}, {4, 0, 3}}));
  EXPECT_EQ(table.pieces({122, 128}, 1000), std::vector<Piece>());
}

}  // namespace
}  // namespace stagegpt::test
