// Tensors that are divided among several files, in Hugging Face's naming.
#include "common/checkpoint/tensor_files.h"

#include <gtest/gtest.h>

#include <numeric>

#include "common/base/json.h"
#include "tests/checkpoint/raw_safetensors.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

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

// Element n of parameter i is 100 i + n.
ParameterValues numbered() {
  return [](std::size_t i, std::int64_t begin, std::span<float> out) {
    std::iota(out.begin(), out.end(), static_cast<float>(100 * i) + static_cast<float>(begin));
  };
}

std::vector<std::size_t> ends(const std::vector<TableRows>& division) {
  std::vector<std::size_t> ends;
  for (const TableRows& rows : division) ends.push_back(rows.end);
  return ends;
}

TEST(TensorFileNames, AreThoseOfHuggingFace) {
  EXPECT_EQ(tensor_file_name("model", 0, 1), "model.safetensors");
  EXPECT_EQ(tensor_file_name("model", 0, 2), "model-00001-of-00002.safetensors");
  EXPECT_EQ(tensor_file_name("model", 11, 12345), "model-00012-of-12345.safetensors");
  EXPECT_EQ(tensor_index_name("model"), "model.safetensors.index.json");
}

TEST(TensorFiles, HaveAboutTheSameSize) {
  ParameterTable equal;
  for (int i = 0; i < 10; ++i) equal.add({concat("h.", i), {8}, 8});
  EXPECT_EQ(ends(divide_among_files(equal, 1)), std::vector<std::size_t>({10}));
  EXPECT_EQ(ends(divide_among_files(equal, 2)), std::vector<std::size_t>({5, 10}));
  EXPECT_EQ(ends(divide_among_files(equal, 5)), std::vector<std::size_t>({2, 4, 6, 8, 10}));
}

TEST(TensorFiles, AreNeverEmptyAndHaveWholeParameters) {
  const ParameterTable table = small_table();
  EXPECT_EQ(ends(divide_among_files(table, 2)), std::vector<std::size_t>({1, 5}));
  EXPECT_EQ(ends(divide_among_files(table, 5)), std::vector<std::size_t>({1, 2, 3, 4, 5}));
  EXPECT_EQ(ends(divide_among_files(table, 9)), std::vector<std::size_t>({1, 2, 3, 4, 5}));
  for (int files = 1; files <= 5; ++files) {
    std::size_t begin = 0;
    for (const TableRows& rows : divide_among_files(table, files)) {
      EXPECT_EQ(rows.begin, begin);
      EXPECT_GT(rows.end, rows.begin);
      begin = rows.end;
    }
  }
}

// The format of PreTrainedModel.save_pretrained().
TEST(TensorFiles, HaveAnIndex) {
  ParameterTable table;
  table.add({"b", {2, 3}, 2});
  table.add({"a", {5}, 5});
  EXPECT_EQ(tensor_index("model", table, {"", "m."}, {{0, 1}, {1, 2}}), R"({
  "metadata": {
    "total_size": 88
  },
  "weight_map": {
    "a": "model-00002-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors",
    "m.a": "model-00002-of-00002.safetensors",
    "m.b": "model-00001-of-00002.safetensors"
  }
}
)");
}

// Writes the table in two files with an index.
void write_two_files(const std::filesystem::path& directory, const ParameterTable& table) {
  const std::vector<TableRows> division = {{0, 2}, {2, 5}};
  for (std::size_t file = 0; file < 2; ++file)
    write_parameters(directory / tensor_file_name("x", file, 2), table, division[file], {{"m.", numbered()}});
  write_file(directory / tensor_index_name("x"), tensor_index("x", table, {"m."}, division));
}

TEST(TensorFiles, AreReadInAnyRange) {
  const ScratchDirectory scratch;
  const ParameterTable table = small_table();
  write_two_files(scratch.path(), table);
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
  write_two_files(scratch.path(), small_table());
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
