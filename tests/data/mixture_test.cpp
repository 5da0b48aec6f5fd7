// Mixtures of texts: their names and weights, and the samples that are taken of each.
#include "common/data/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/base/error.h"
#include "common/data/data_loader.h"
#include "tests/data/shards.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

std::vector<std::int64_t> shares_of(const std::string& data) {
  std::vector<std::int64_t> shares;
  for (const MixtureSource& source : parse_mixture(data)) shares.push_back(source.share);
  return shares;
}

using Shares = std::vector<std::int64_t>;

TEST(Mixture, HasSharesInProportionToTheWeights) {
  const std::vector<MixtureSource> sources = parse_mixture("plays/*.txt=0.7,b=x.bin=0.3");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].data, "plays/*.txt");
  EXPECT_EQ(sources[1].data, "b=x.bin");
  EXPECT_EQ(shares_of("a=0.7,b=0.3"), (Shares{7000, 3000}));
  EXPECT_EQ(shares_of("a=7,b=3"), (Shares{7000, 3000}));
  EXPECT_EQ(shares_of("a=1,b=1,c=1"), (Shares{3334, 3333, 3333}));
  EXPECT_EQ(shares_of("a=1,b=2,c=3"), (Shares{1667, 3333, 5000}));
  EXPECT_EQ(shares_of("a=1e308,b=1e308"), (Shares{5000, 5000}));
  EXPECT_EQ(shares_of("a=9999,b=1"), (Shares{9999, 1}));
  EXPECT_EQ(shares_of("a=2"), (Shares{kMixtureBlock}));
}

TEST(Mixture, IsNoTextWithoutWeights) {
  for (const char* data : {"a.txt", "a,b", "a=b", "a=1x", "a=", ""})
    EXPECT_TRUE(parse_mixture(data).empty()) << data;
  const ScratchDirectory directory;
  directory.write("a=1,b=2", "text");
  EXPECT_TRUE(parse_mixture((directory.path() / "a=1,b=2").string()).empty());
}

// A run that could not be resumed, since it keeps absolute paths, is not begun.
TEST(Mixture, IsRefusedWhereAPathHasAComma) {
  const ScratchDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path(), with_comma = directory.path() / "x,y";
  std::filesystem::create_directory(with_comma);
  std::filesystem::current_path(with_comma);
  const std::string message = refusal([] { parse_mixture("a=1,b=2"); });
  std::filesystem::current_path(before);
  EXPECT_EQ(message, concat("--data: the path of \"a\" has a comma, which separates the texts of a mixture: ",
                            with_comma / "a"));
}

TEST(Mixture, IsRefusedWithItsText) {
  const auto refused = [](const std::string& data) { return refusal([&] { parse_mixture(data); }); };
  EXPECT_EQ(refused("a=1,b.txt"),
            "--data: \"b.txt\" has no weight; expected one for each text, as in 'a.txt=0.7,b.txt=0.3'");
  EXPECT_EQ(refused("a=1,,b=1"),
            "--data: \"\" has no weight; expected one for each text, as in 'a.txt=0.7,b.txt=0.3'");
  EXPECT_EQ(refused("a=1,=2"), "--data: there is no name before the weight 2");
  EXPECT_EQ(refused("a=1,b=0"), "--data: the weight of \"b\" is 0, expected a positive number");
  EXPECT_EQ(refused("a=-1,b=1"), "--data: the weight of \"a\" is -1, expected a positive number");
  EXPECT_EQ(refused("a=nan,b=1"), "--data: the weight of \"a\" is nan, expected a positive number");
  EXPECT_EQ(refused("a=1,b=inf"), "--data: the weight of \"b\" is inf, expected a positive number");
  EXPECT_EQ(refused("a=1,b=2,a=3"), "--data: \"a\" has two weights");
  EXPECT_EQ(refused("a=100000,b=1"), "--data: the weight of \"b\" is less than 1/10000 of all");
}

TEST(Mixture, HasAbsolutePaths) {
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(with_absolute_paths("a.txt=0.7,/b.txt=0.3"), here + "/a.txt=0.7,/b.txt=0.3");
  EXPECT_EQ(with_absolute_paths("a.txt"), here + "/a.txt");
}

// Part 0 has the first 1,000 tokens.
struct MixedLoader {
  static constexpr std::int64_t kT = 10, kFirst = 1000, kSecond = 505;

  explicit MixedLoader(Shares shares = {7000, 3000}, std::uint64_t seed = 1)
      : loader(counting(kFirst + kSecond), kT, seed, {{kFirst, shares[0]}, {kSecond, shares[1]}}) {}

  // The first token of each sample.
  std::vector<std::int64_t> begins(std::int64_t first, std::int64_t count) const {
    const Batch batch = loader.shuffled(first, count);
    std::vector<std::int64_t> begins;
    for (std::size_t i = 0; i < batch.ids.size(); i += kT) begins.push_back(batch.ids[i]);
    return begins;
  }

  DataLoader loader;
};

TEST(MixedSamples, HaveExactSharesInEachBlock) {
  const MixedLoader mixed;
  for (const std::int64_t block : {0, 1, 7}) {
    const auto begins = mixed.begins(block * kMixtureBlock, kMixtureBlock);
    EXPECT_EQ(std::ranges::count_if(begins, [](auto begin) { return begin < MixedLoader::kFirst; }), 7000);
  }
}

// In a random order, samples i and i + 1 are of different parts with the probability 2·0.7·0.3, and a tenth
// of the block has about a tenth of each part.
TEST(MixedSamples, AreInRandomOrder) {
  const MixedLoader mixed;
  const auto begins = mixed.begins(0, kMixtureBlock);
  std::int64_t changes = 0, of_first = 0;
  for (std::size_t i = 1; i < begins.size(); ++i)
    changes += (begins[i] < MixedLoader::kFirst) != (begins[i - 1] < MixedLoader::kFirst);
  const double n = static_cast<double>(kMixtureBlock), expected = 2 * 0.7 * 0.3 * n;
  EXPECT_NEAR(static_cast<double>(changes), expected, 5 * std::sqrt(expected));
  for (std::size_t i = 0; i < 1000; ++i) of_first += begins[i] < MixedLoader::kFirst;
  EXPECT_NEAR(static_cast<double>(of_first), 700, 5 * std::sqrt(1000 * 0.7 * 0.3));
  const auto parts_of = [](std::vector<std::int64_t> values) {
    for (std::int64_t& value : values) value = value < MixedLoader::kFirst;
    return values;
  };
  EXPECT_NE(parts_of(begins), parts_of(mixed.begins(kMixtureBlock, kMixtureBlock)));
  EXPECT_NE(parts_of(begins), parts_of(MixedLoader({7000, 3000}, 2).begins(0, kMixtureBlock)));
}

// The samples of a part, in the order of their numbers in it, are shuffled epochs of its windows.
TEST(MixedSamples, OfAPartHaveEveryWindowOnceInAnEpoch) {
  const MixedLoader mixed;
  EXPECT_EQ(mixed.loader.windows(), 98 + 49);
  auto begins = mixed.begins(0, kMixtureBlock);
  std::erase_if(begins, [](auto begin) { return begin < MixedLoader::kFirst; });
  // The order of a block is random, so its first epochs are mixed; but all of them together have each window
  // as often as any other, up to one epoch that is not complete.
  std::vector<int> counts(MixedLoader::kFirst + MixedLoader::kSecond);
  for (const std::int64_t begin : begins) {
    ASSERT_LE(begin + MixedLoader::kT, MixedLoader::kFirst + MixedLoader::kSecond - 1);
    for (std::int64_t i = 0; i < MixedLoader::kT; ++i) ++counts[static_cast<std::size_t>(begin + i)];
  }
  const auto [least, most] = std::minmax_element(counts.begin() + MixedLoader::kFirst + 2 * MixedLoader::kT,
                                                 counts.end() - 2 * MixedLoader::kT);
  EXPECT_GE(*least, 3000 / 49);
  EXPECT_LE(*most, 3000 / 49 + 1);
}

// Epochs begin at other positions, so the next block has other windows.
TEST(MixedSamples, OfTheNextBlockAreTheNextOnesOfEachPart) {
  const MixedLoader mixed;
  auto first = mixed.begins(0, kMixtureBlock), second = mixed.begins(kMixtureBlock, kMixtureBlock);
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_NE(first, second);
}

// Parts of one size that were shuffled alike would have the same windows.
TEST(MixedSamples, OfTwoPartsAreShuffledIndependently) {
  constexpr std::int32_t kSize = 1000;
  const DataLoader loader(counting(2 * kSize), 10, 3, {{kSize, 5000}, {kSize, 5000}});
  const Batch batch = loader.shuffled(0, kMixtureBlock);
  std::vector<std::int32_t> begins[2];
  for (std::size_t i = 0; i < batch.ids.size(); i += 10)
    begins[batch.ids[i] / kSize].push_back(batch.ids[i] % kSize);
  for (auto& of_part : begins) std::ranges::sort(of_part);
  ASSERT_EQ(begins[0].size(), begins[1].size());
  EXPECT_NE(begins[0], begins[1]);
}

TEST(MixedSamples, OfOnePartAreThoseWithoutAMixture) {
  const auto tokens = counting(MixedLoader::kFirst + MixedLoader::kSecond);
  const DataLoader one(tokens, 10, 1, {{std::ssize(tokens), kMixtureBlock}}), plain(tokens, 10, 1);
  EXPECT_EQ(one.shuffled(9'990, 20).ids, plain.shuffled(9'990, 20).ids);
}

TEST(MixedSamples, DoNotDependOnHowTheyAreFetched) {
  const MixedLoader mixed;
  auto parts = mixed.begins(9'990, 7);
  std::ranges::copy(mixed.begins(9'997, 13), std::back_inserter(parts));
  EXPECT_EQ(parts, mixed.begins(9'990, 20));
}

TEST(MixedSamples, NeedAWindowOfEachPart) {
  const auto loader = [](std::int64_t first, std::int64_t second, std::int64_t share) {
    return internal_error([&] { DataLoader(counting(1505), 10, 1, {{first, 7000}, {second, share}}); });
  };
  EXPECT_EQ(loader(1495, 10, 3000), "data loader: 10 tokens, expected more than 10");
  EXPECT_EQ(loader(1000, 500, 3000), "data loader: a mixture of 1500 of 1505 tokens, with shares of 10000");
  EXPECT_EQ(loader(1000, 505, 2000), "data loader: a mixture of 1505 of 1505 tokens, with shares of 9000");
}

}  // namespace
}  // namespace stagegpt::test
