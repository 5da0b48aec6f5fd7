// Training on token shards, from prepare_data or from llm.c, valid and damaged.
#include <cstdlib>
#include <iterator>

#include "common/base/error.h"
#include "common/data/corpus.h"
#include "tests/data/prepare_data_fixture.h"

namespace stagegpt::test {
namespace {

TEST_F(PrepareData, TrainingOnShardsIsTrainingOnTheText) {
  directory.write("text.txt", story(500));
  for (const char* kind : {"char", "word", "bpe"}) {
    const std::string output = std::string("out_") + kind;
    prepare(output, {"--input", "text.txt", "--tokenizer", kind, "--shard-tokens", "999"});
    const auto expected = train({"--data", "text.txt", "--tokenizer", kind}).first;
    EXPECT_EQ(train({"--data", output}).first, expected);
    EXPECT_EQ(train({"--data", output + "/train_*.bin"}).first, expected);
  }
}

TEST_F(PrepareData, SeveralTextsAreDocuments) {
  directory.write("1.txt", story(200));
  directory.write("2.txt", story(300));
  prepare("out", {"--input", "1.txt", "2.txt"});
  EXPECT_EQ(train({"--data", "out"}).first, train({"--data", "?.txt"}).first);
}

// All shards are open at the same time. The limit of open files is raised for them as far as it may be.
TEST_F(PrepareData, TrainingOpensMoreShardsThanTheLimitAtFirst) {
  directory.write("text.txt", story(200));
  prepare("out", words("--input text.txt --tokenizer char --shard-tokens 60"));
  ASSERT_GT(std::distance(fs::directory_iterator(directory.path() / "out"), {}), 100);
  const auto trained = [&](const std::string& limits) {
    return shell(
        concat(limits, " && '", STAGEGPT_BIN_DIR,
               "/stage0_train' --data out --n-layer 1 --n-head 1 --n-embd 8 --block-size 8 --steps 1 "
               "--batch-size 2 --threads 1 --eval-tokens 8 --max-new-tokens 0"));
  };
  EXPECT_EQ(trained("ulimit -Sn 64"), 0) << read_bytes(directory.path() / "out.log");
  EXPECT_NE(trained("ulimit -n 64"), 0);
  EXPECT_NE(read_bytes(directory.path() / "out.log").find("Too many open files"), std::string::npos);
}

class BadShards : public PrepareData {
 protected:
  BadShards() {
    directory.write("text.txt", story(500));
    prepare("good", {"--input", "text.txt", "--vocab-size", "300"});
  }
  void expect_train_refused(Arguments arguments, const std::string& says) const {
    arguments.insert(arguments.end(), {"--steps", "1", "--max-new-tokens", "0"});
    expect_failure(run_program("stage0_train", arguments, directory.path()), 2, says);
  }
  void write_shard(const fs::path& path, const Ids& ids) const {
    test::write_shard(directory.path() / path, ids);
  }
};

TEST_F(BadShards, ThatHaveChanged) {
  std::string bytes = read_bytes(directory.path() / "good/train_000000.bin");
  bytes[1500] = static_cast<char>(bytes[1500] ^ 1);
  directory.write("good/train_000000.bin", bytes);
  expect_train_refused({"--data", "good"}, "has changed: its hash differs");
}

TEST_F(BadShards, WhoseTokenizerHasChanged) {
  std::string json = read_bytes(directory.path() / "good/tokenizer.json");
  directory.write("good/tokenizer.json", json + " ");
  expect_train_refused({"--data", "good"}, "has changed: its hash differs");
}

TEST_F(BadShards, ThatTheManifestDoesNotList) {
  write_shard("good/train_000001.bin", {1, 2, 3});
  expect_train_refused({"--data", "good"}, "is not listed in manifest.json");
}

TEST_F(BadShards, WithABrokenManifest) {
  directory.write("good/manifest.json", "{}");
  expect_train_refused({"--data", "good"}, "manifest.json");
  directory.write("good/manifest.json", "{");
  expect_train_refused({"--data", "good"}, "manifest.json");
}

TEST_F(BadShards, WithTokensOutsideTheVocabulary) {
  fs::create_directory(directory.path() / "bad");
  write_shard("bad/x_train.bin", Ids(1000, 300));
  expect_train_refused({"--data", "bad/x_train.bin", "--tokenizer-path", "good/tokenizer.json"},
                       "is 300, outside the vocabulary of 300");
}

TEST_F(BadShards, WithoutATokenizer) {
  fs::create_directory(directory.path() / "bad");
  write_shard("bad/x_train.bin", Ids(1000, 3));
  expect_train_refused({"--data", "bad/x_train.bin"}, "no tokenizer.json beside");
}

TEST_F(BadShards, ForValidationAmongThoseForTraining) {
  expect_train_refused({"--data", "good/*.bin"},
                       "--data: the pattern matches shards for training and for validation, "
                       "\"good/train_000000.bin\" and \"good/val_000000.bin\"; name the first ones");
}

TEST_F(BadShards, OfATokenizerOfAnotherKind) {
  expect_train_refused({"--data", "good", "--tokenizer", "char"}, "is of kind bpe");
  expect_train_refused({"--data", "good", "--vocab-size", "400"}, "--vocab-size");
}

TEST_F(BadShards, OfAnotherVocabulary) {
  prepare("other", {"--input", "text.txt", "--vocab-size", "310"});
  expect_train_refused({"--data", "good", "--tokenizer-path", "other"}, "has tokens of another vocabulary");
  expect_train_refused({"--data", "*/train_*.bin"}, "has tokens of another vocabulary");
}

TEST_F(BadShards, OfWhichSomeAreMissing) {
  fs::remove(directory.path() / "good/val_000000.bin");
  expect_train_refused({"--data", "good"}, "it lists val_000000.bin, which is missing");
}

TEST_F(BadShards, WithFlagsForText) {
  expect_train_refused({"--data", "good", "--parse-special-tokens"},
                       "--parse-special-tokens: cannot be used with token shards");
}

TEST_F(BadShards, ThatAreNowhere) {
  expect_train_refused({"--data", "bad_*.bin"}, "--data: no file matches \"bad_*.bin\"");
  fs::create_directory(directory.path() / "empty");
  expect_train_refused({"--data", "empty"}, "a directory without train_*.bin");
}

TEST_F(BadShards, AmongTexts) {
  directory.write("good/train_0.txt", "text");
  expect_train_refused({"--data", "good/train_*"}, "but other files are");
}

// llm.c has a pair of files, NAME_train.bin and NAME_val.bin, and no manifest.
TEST_F(BadShards, NamedTrainGoWithThoseNamedVal) {
  fs::create_directory(directory.path() / "llmc");
  fs::copy(directory.path() / "good/tokenizer.bin", directory.path() / "llmc/tokenizer.bin");
  write_shard("llmc/story_train.bin", Ids(1000, 7));
  write_shard("llmc/story_val.bin", Ids(500, 7));
  const auto says = [&](const char* text) {
    return train({"--data", "llmc/story_train.bin"}).second.find(text) != std::string::npos;
  };
  EXPECT_TRUE(says("1,000 tokens for training"));
  fs::remove(directory.path() / "llmc/story_val.bin");
  write_shard("llmc/counting_train.bin", counting(280));
  CorpusConfig config;
  config.data = (directory.path() / "llmc/counting_train.bin").string();
  SingleProcess alone;
  const Corpus corpus = load_shared_corpus(alone, config, 16, 1);
  EXPECT_EQ(corpus.train.size(), 252);
  EXPECT_EQ(corpus.train.read(251, 1), Ids{251});
  EXPECT_EQ(corpus.validation.read(0, 1), Ids{252});
  EXPECT_TRUE(says("900 tokens for training"));
}

}  // namespace
}  // namespace stagegpt::test
