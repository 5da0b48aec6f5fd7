// Tests of the program prepare_data.
#include <algorithm>
#include <fstream>

#include "common/base/json.h"
#include "common/data/corpus.h"
#include "common/data/text_source.h"
#include "common/io/content_hash.h"
#include "tests/data/prepare_data_fixture.h"

namespace stagegpt::test {
namespace {

TEST_F(PrepareData, HoldsTheTokensOfTheText) {
  const std::string text = story(500);
  directory.write("text.txt", text);
  for (const char* kind : {"char", "word", "bpe"}) {
    const std::string output = std::string("out_") + kind;
    prepare(output, {"--input", "text.txt", "--tokenizer", kind});
    const auto made = tokenizer(output);
    EXPECT_EQ(made->kind(), kind);
    const Ids train = tokens(output, "train"), validation = tokens(output, "val");
    const std::string train_text = made->decode(train), validation_text = made->decode(validation);
    EXPECT_EQ(train_text + validation_text, text) << kind;
    EXPECT_NEAR(static_cast<double>(validation_text.size()), 0.1 * static_cast<double>(text.size()), 4.0);
    EXPECT_EQ(train, made->encode(train_text));
    EXPECT_EQ(validation, made->encode(validation_text));
  }
}

TEST_F(PrepareData, SaysInTheManifestWhatItMade) {
  directory.write("text.txt", story(200));
  prepare("out", words("--input text.txt --vocab-size 300 --shard-tokens 1000"));
  const auto manifest = nlohmann::json::parse(read_bytes(directory.path() / "out/manifest.json"));
  EXPECT_EQ(manifest["version"], 1);
  EXPECT_EQ(manifest["tokenizer"]["vocab_size"], 300);
  EXPECT_EQ(manifest["tokenizer"]["end_of_text"], 299);
  EXPECT_EQ(manifest["inputs"][0]["bytes"], story(200).size());
  for (const std::string part : {"train", "val"}) {
    const Ids ids = tokens("out", part);
    EXPECT_EQ(manifest[part]["tokens"], ids.size());
    EXPECT_EQ(manifest[part]["text_bytes"], tokenizer("out")->decode(ids).size());
    for (const auto& shard : manifest[part]["shards"]) {
      const fs::path path = directory.path() / "out" / shard["file"].get<std::string>();
      EXPECT_EQ(shard["bytes"], fs::file_size(path));
      EXPECT_EQ(shard["xxh3_128"], hash_of_file(path));
      EXPECT_LE(shard["tokens"], 1000);
    }
  }
  EXPECT_GT(manifest["train"]["shards"].size(), 2u);
}

TEST_F(PrepareData, DoesNotDependOnThreadsOrShards) {
  std::string text = story(20000);  // the text has several blocks
  text += std::string(300'000, 'x') + std::string(300'000, ' ') + story(10);
  directory.write("text.txt", text);
  prepare("a", {"--input", "text.txt", "--threads", "1"});
  prepare("b", words("--input text.txt --threads 5 --shard-tokens 7777"));
  EXPECT_EQ(read_bytes(directory.path() / "a/tokenizer.json"),
            read_bytes(directory.path() / "b/tokenizer.json"));
  const auto manifest = nlohmann::json::parse(read_bytes(directory.path() / "b/manifest.json"));
  for (const std::string part : {"train", "val"}) {
    EXPECT_EQ(tokens("a", part), tokens("b", part));
    for (const auto& shard : manifest[part]["shards"]) EXPECT_LE(shard["tokens"], 7777);
  }
  EXPECT_EQ(tokens("a", "train"), tokenizer("a")->encode(tokenizer("a")->decode(tokens("a", "train"))));
}

TEST_F(PrepareData, PutsTheEndOfTextBetweenDocuments) {
  directory.write("1.txt", "one one");
  directory.write("2.txt", "");
  directory.write("3.txt", "two <|endoftext|> two");
  prepare("out", words("--input 1.txt 2.txt 3.txt --vocab-size 257 --val-fraction 0"));
  const auto bpe = tokenizer("out");
  Ids expected = bpe->encode("one one"), third = bpe->encode("two <|endoftext|> two");
  expected.push_back(256);
  expected.insert(expected.end(), third.begin(), third.end());
  EXPECT_EQ(tokens("out", "train"), expected);
  EXPECT_EQ(tokens("out", "val"), Ids());

  prepare("special", words("--input 1.txt 3.txt --vocab-size 257 --val-fraction 0 --parse-special-tokens"));
  const Ids ids = tokens("special", "train");
  EXPECT_EQ(std::ranges::count(ids, 256), 2);
  EXPECT_EQ(bpe->decode(ids), "one one<|endoftext|>two <|endoftext|> two");
  // The name of a special token does not add characters to the vocabulary.
  prepare("chars", words("--input 1.txt 3.txt --tokenizer char --parse-special-tokens"));
  EXPECT_EQ(tokenizer("chars")->size(), std::string(" enotw").size() + 1);
}

TEST_F(PrepareData, SplitsInsideADocument) {
  directory.write("1.txt", "aaaa");
  directory.write("2.txt", "bbbbbb");
  prepare("out", words("--input 1.txt 2.txt --vocab-size 257 --val-fraction 0.4"));
  const auto bpe = tokenizer("out");
  EXPECT_EQ(bpe->decode(tokens("out", "train")), "aaaa<|endoftext|>bb");
  EXPECT_EQ(bpe->decode(tokens("out", "val")), "bbbb");
  prepare("at_the_border", words("--input 1.txt 2.txt --vocab-size 257 --val-fraction 0.6"));
  EXPECT_EQ(bpe->decode(tokens("at_the_border", "train")), "aaaa");
  EXPECT_EQ(bpe->decode(tokens("at_the_border", "val")), "bbbbbb");
}

TEST_F(PrepareData, SplitsBetweenCharacters) {
  directory.write("text.txt", "中文中文");  // 4 characters of 3 bytes; 34 % of 12 bytes ends inside one
  prepare("out", words("--input text.txt --tokenizer char --val-fraction 0.34"));
  const auto made = tokenizer("out");
  EXPECT_EQ(made->decode(tokens("out", "train")), "中文");
}

TEST_F(PrepareData, SplitsBeforeASpecialToken) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += "xab<|endoftext|>";
  directory.write("text.txt", text);
  prepare("base", {"--input", "text.txt", "--vocab-size", "257"});
  // The last 5 % of 160 bytes begin inside the last special token.
  const Arguments split = words("--input text.txt --tokenizer-path base --val-fraction 0.05");
  prepare("special", split + Arguments{"--parse-special-tokens"});
  EXPECT_EQ(tokens("special", "val"), Ids{256});
  EXPECT_EQ(std::ranges::count(tokens("special", "train"), 256), 9);
  prepare("text", split);
  EXPECT_EQ(tokenizer("text")->decode(tokens("text", "val")), "oftext|>");
}

// A shorter token that also occurs before the cut hides no token that is cut.
TEST_F(PrepareData, SplitsBeforeAShortSpecialToken) {
  const std::vector<std::string> paths = {directory.write("text.txt", "<s>aaaaa<s>bb")};
  const TextSource text(paths, "--data");
  const std::vector<SpecialToken> special = {{"<|endoftext|>", 0}, {"<s>", 1}};
  EXPECT_EQ(text.split(3.0 / 13, special), 8);
  EXPECT_EQ(text.split(3.0 / 13), 10);
}

// A pipe that delivers the text in two pieces.
TEST_F(PrepareData, ReadsStandardInputAndPipes) {
  directory.write("text.txt", story(50));
  prepare("file", {"--input", "text.txt"});
  ASSERT_EQ(shell(concat("{ head -c 700 text.txt; sleep 0.2; tail -c +701 text.txt; } | '", STAGEGPT_BIN_DIR,
                         "/prepare_data' --input - --output piped")),
            0)
      << read_bytes(directory.path() / "out.log");
  EXPECT_EQ(tokens("piped", "train"), tokens("file", "train"));
  EXPECT_EQ(tokens("piped", "val"), tokens("file", "val"));
}

TEST_F(PrepareData, UsesAnExistingTokenizer) {
  directory.write("text.txt", story(50));
  directory.write("other.txt", "quite another text");
  prepare("first", {"--input", "text.txt", "--vocab-size", "300"});
  prepare("second", words("--input other.txt --tokenizer-path first --val-fraction 0"));
  EXPECT_EQ(tokens("second", "train"), tokenizer("first")->encode("quite another text"));
  EXPECT_EQ(read_bytes(directory.path() / "first/tokenizer.json"),
            read_bytes(directory.path() / "second/tokenizer.json"));
}

TEST_F(PrepareData, LeavesNothingThatLooksWholeWhenItFails) {
  const std::string text = story(20000);
  directory.write("text.txt", text);
  directory.write("few.txt", "abc");
  prepare("few", words("--input few.txt --tokenizer char --val-fraction 0"));
  expect_refused(words("--input text.txt --tokenizer-path few --output out"), "is not in the vocabulary");
}

TEST_F(PrepareData, TakesOverWhatAnInterruptedRunLeft) {
  directory.write("text.txt", story(50));
  fs::create_directories(directory.path() / "out.partial");
  std::ofstream(directory.path() / "out.partial/train_000007.bin") << "left over";
  prepare("out", {"--input", "text.txt"});
  EXPECT_FALSE(fs::exists(directory.path() / "out/train_000007.bin"));
  EXPECT_FALSE(fs::exists(directory.path() / "out.partial"));
}

TEST_F(PrepareData, LeavesNothingThatLooksWholeWhenItIsKilled) {
  directory.write("text.txt", story(40'000));
  // Kills the program when the third of its tens of thousands of shards is complete.
  ASSERT_EQ(shell(concat("'", STAGEGPT_BIN_DIR,
                         "/prepare_data' --input text.txt --tokenizer char --shard-tokens 40 --output out &\n"
                         "while [ ! -e out.partial/train_000003.bin ]; do\n"
                         "  kill -0 $! || exit 1\n  sleep 0.01\ndone\nkill -KILL $!\nwait $!\n[ $? = 137 ]")),
            0);
  EXPECT_FALSE(fs::exists(directory.path() / "out"));
  ASSERT_TRUE(fs::exists(directory.path() / "out.partial/train_000000.bin"));
  const ProgramResult result =
      run_program("stage0_train", {"--data", "out.partial", "--steps", "1"}, directory.path());
  expect_failure(result, 2, "manifest.json");
  prepare("out", {"--input", "text.txt"});
}

TEST_F(PrepareData, DoesNotTouchWhatIsThere) {
  directory.write("text.txt", story(50));
  fs::create_directories(directory.path() / "mine.partial");
  std::ofstream(directory.path() / "mine.partial/notes") << "of value";
  EXPECT_EQ(run({"--input", "text.txt", "--output", "mine"}).exit_code, 2);
  EXPECT_EQ(read_bytes(directory.path() / "mine.partial/notes"), "of value");
  prepare("out", {"--input", "text.txt"});
  expect_failure(run({"--input", "text.txt", "--output", "out/"}), 2, "exists already");
  fs::create_directory(directory.path() / "empty");
  prepare("empty", {"--input", "text.txt"});
}

TEST_F(PrepareData, RefusesBadInput) {
  directory.write("empty.txt", "");
  directory.write("text.txt", story(5));
  directory.write("bytes.txt", std::string(300'000, 'a') + "\xff");
  expect_refused({"--output", "out"}, "--input: expected text files");
  expect_refused({"--input", "text.txt"}, "--output: expected a directory");
  expect_refused({"--input", "empty.txt", "--output", "out"}, "\"empty.txt\" is empty");
  expect_refused(words("--input empty.txt empty.txt --output out"), "all files are empty");
  expect_refused({"--input", "nowhere.txt", "--output", "out"}, "cannot open \"nowhere.txt\"");
  expect_refused({"--input", ".", "--output", "out"}, "\".\" is a directory");
  expect_refused(words("--input bytes.txt --tokenizer char --output out"),
                 "\"bytes.txt\" is not UTF-8: byte 300000");
  expect_refused(words("--input bytes.txt --tokenizer word --output out"),
                 "\"bytes.txt\" is not UTF-8: byte 300000");
  expect_refused(words("--input text.txt --vocab-size 256 --output out"),
                 "--vocab-size: 256, expected at least 257");
  expect_refused(words("--input text.txt --tokenizer char --vocab-size 99 --output out"),
                 "--vocab-size: cannot be set for --tokenizer char");
  expect_refused(words("--input text.txt --tokenizer gpt2 --tokenizer-path nowhere --output out"),
                 "scripts/download_gpt2.sh");
  expect_refused(words("--input text.txt --shard-tokens 0 --output out"), "--shard-tokens");
  expect_refused({"--input", "text.txt", "--output", "/proc/out"}, "--output: cannot create");
  expect_refused({"--input", "text.txt", "--output", "."}, "cannot be replaced");
  expect_refused({"--input", "data/tinyshakespeare.txt", "--output", "out"}, "scripts/download_data.sh");
  for (const std::string name : {"tinyshakespeare.txt", "tinystories.txt"}) {
    expect_refused({"--input", name, "--output", "out"},
                   "--input: cannot open \"" + name +
                       "\": No such file or directory; scripts/download_data.sh fetches it\n");
  }
  expect_refused({"--input", "other.txt", "--output", "out"},
                 "--input: cannot open \"other.txt\": No such file or directory\n");
  expect_refused({"--input", "*.md", "--output", "out"}, "no file matches");
  fs::create_directory(directory.path() / "elsewhere");
  fs::create_directory_symlink("elsewhere", directory.path() / "name.partial");
  expect_refused({"--input", "text.txt", "--output", "name"}, "--output: cannot open \"name.partial\"");
  fs::create_directory_symlink("elsewhere", directory.path() / "link");
  expect_refused({"--input", "text.txt", "--output", "link"}, "cannot be replaced");
}

// The output directory gets its name by renaming, which is impossible across file systems.
TEST_F(PrepareData, RefusesAMountPoint) {
  directory.write("text.txt", story(5));
  std::ifstream mounts("/proc/self/mounts");
  std::string empty;
  for (std::string line; std::getline(mounts, line) && empty.empty();) {
    std::istringstream words(line);
    std::string path;
    words >> path >> path;
    std::error_code error;
    if (fs::is_directory(path, error) && fs::is_empty(path, error) && !error && path != "/") empty = path;
  }
  if (empty.empty()) GTEST_SKIP() << "there is no empty one";
  expect_refused({"--input", "text.txt", "--output", empty},
                 "\" is a mount point and cannot be replaced, name a directory in it");
}

TEST_F(PrepareData, TakesOddTextAsItIs) {
  const std::string texts[] = {"x",
                               std::string("a\0b\0\0c", 6),
                               "\r\none\r\ntwo\r\n",
                               "\xef\xbb\xbfmarked",
                               "\xff\xfe\x80 broken \xe2\x82",
                               std::string(2'000'000, 'a'),
                               std::string(1'500'000, ' '),
                               std::string(700'000, '\xff')};
  int i = 0;
  for (const std::string& text : texts) {
    const std::string output = "out" + std::to_string(i++);
    directory.write("text.txt", text);
    prepare(output, words("--input text.txt --val-fraction 0 --any-bytes"));
    EXPECT_EQ(tokenizer(output)->decode(tokens(output, "train")), text) << text.substr(0, 20);
  }
}

TEST_F(PrepareData, RefusesWhatIsNoText) {
  const std::pair<std::string, const char*> files[] = {
      {"PK\x03\x04", "a zip file; unpack it"},
      {"BZh91AY&SY", "a bzip2 file; unpack it"},
      {std::string("\xff\xfe\x61\0", 4), "UTF-16, not UTF-8; convert it"},
      {std::string("\xff\xfe\0\0\x61\0\0\0", 8), "UTF-32, not UTF-8; convert it"},
      {std::string("a\0b\0", 4), "no text: 2 of its first 4 bytes are zero; convert it"},
      {"\x93NUMPY\x01", "an array of NumPy; convert it to a text"},
      {"{\"text\": \"a\"}\n{\"text\": \"b\"}\n",
       "JSON Lines; prepare_data takes the texts of a field of it with --text-field"},
      {std::string(493, 'a') + "\xe9 \xe9 \xe9 \xe9 \xe9 \xe9 ",
       "no UTF-8: 6 of its first 505 bytes belong to no character; convert it"}};
  for (const auto& [bytes, kind] : files) {
    directory.write("text.txt", bytes);
    expect_refused(
        {"--input", "text.txt", "--output", "out"},
        concat("--input: \"text.txt\" is ", kind, ", or take its bytes as they are with --any-bytes"));
  }
  directory.write("text.txt", std::string(490, 'a') + std::string(5, '\0') +
                                  "\xe9 \xe9 \xe9 \xe9 \xe9 ");  // a hundredth of each
  prepare("out", {"--input", "text.txt"});
  directory.write("text.txt", "{}\nThe second line is no object.\n");
  prepare("one_object", {"--input", "text.txt"});
}

// Packs a file with the program gzip.
void pack(const fs::path& file) {
  ASSERT_EQ(std::system(("gzip --keep --force '" + file.string() + "'").c_str()), 0);
}

TEST_F(PrepareData, UnpacksGzip) {
  const fs::path text = directory.write("text.txt", story(9000)), more = directory.write("more.txt", "more");
  pack(text);
  pack(more);
  prepare("plain", {"--input", "text.txt"});
  prepare("packed", {"--input", "text.txt.gz"});
  EXPECT_EQ(tokens("packed", "train"), tokens("plain", "train"));
  EXPECT_EQ(tokens("packed", "val"), tokens("plain", "val"));
  const auto manifest = nlohmann::json::parse(read_bytes(directory.path() / "packed/manifest.json"));
  EXPECT_EQ(manifest["inputs"][0]["bytes"], story(9000).size());
  // gzip's files one after the other are one file.
  const std::string packed = read_bytes(text.string() + ".gz");
  directory.write("both.gz", packed + read_bytes(more.string() + ".gz"));
  prepare("both", {"--input", "both.gz", "--val-fraction", "0"});
  EXPECT_EQ(tokenizer("both")->decode(tokens("both", "train")), story(9000) + "more");

  directory.write("short.gz", packed.substr(0, packed.size() - 100));
  expect_refused({"--input", "short.gz", "--output", "out"},
                 "--input: \"short.gz\": the gzip file ends too early");
  std::string damaged = packed;
  damaged[damaged.size() - 6] ^= 1;  // in the checksum
  directory.write("damaged.gz", damaged);
  expect_refused({"--input", "damaged.gz", "--output", "out"},
                 "--input: \"damaged.gz\": the gzip file is damaged: ");
}

TEST_F(PrepareData, ReadsTheTextsOfJsonLines) {
  const std::string long_text(300'000, 'x');
  const fs::path lines = directory.write(
      "lines.jsonl", "{\"id\": 1, \"text\": \"one\\ntwo\"}\n\n{\"text\": \"\", \"id\": 2}\r\n{\"text\": \"" +
                         long_text +
                         "\"}\n{\"text\": \"caf\\u00e9 \\ud83d\\ude00\", \"more\": {\"text\": 3}}");
  pack(lines);
  const std::string expected = "one\ntwo<|endoftext|>" + long_text + "<|endoftext|>café 😀";
  for (const std::string input : {"lines.jsonl", "lines.jsonl.gz"}) {
    const std::string output = "of_" + input;
    prepare(output, {"--input", input, "--text-field", "text", "--val-fraction", "0"});
    EXPECT_EQ(tokenizer(output)->decode(tokens(output, "train")), expected);
    const auto manifest = nlohmann::json::parse(read_bytes(directory.path() / output / "manifest.json"));
    EXPECT_EQ(manifest["inputs"][0]["documents"], 3);
    EXPECT_EQ(manifest["inputs"][0]["bytes"], 7 + 300'000 + 10);
  }
  prepare("char", words("--input lines.jsonl --text-field text --tokenizer char"));
  EXPECT_EQ(tokenizer("char")->size(), std::string("one\ntwx cafe ").size() + 1);
}

TEST_F(PrepareData, NamesTheLineOfJsonLinesThatItCannotRead) {
  const std::pair<const char*, const char*> lines[] = {
      {"{\"content\": \"a\", \"n\": 1, \"title\": \"b\"}",
       "there is no field 'text'; strings are in 'content', 'title'"},
      {"{\"text\": 3}", "'text' is of the JSON type number, expected a string"},
      {"[\"text\"]", "expected an object, got the JSON type array"},
      {"{\"text\": \"a", "at column 12"},
      {"no JSON", "at column 2"}};
  for (const auto& [line, problem] : lines) {
    directory.write("lines.jsonl", concat("{\"text\": \"a\"}\n\n", line, "\n"));
    const Arguments arguments = words("--input lines.jsonl --text-field text --output out");
    expect_refused(arguments, "--input: \"lines.jsonl\": line 3: ");
    expect_refused(arguments, problem);
  }
  directory.write("lines.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
  directory.write("a.txt", "aaaa");
  prepare("of_a", {"--input", "a.txt", "--tokenizer", "char"});
  expect_refused(words("--input lines.jsonl --text-field text --output out --tokenizer-path of_a"),
                 "--input: \"lines.jsonl\", line 2: ");
}

TEST_F(PrepareData, TakesAVeryLongLine) {
  constexpr std::size_t kBytes = 20'000'000;
  std::string text;
  for (int i = 0; text.size() < kBytes; ++i) text += "word" + std::to_string(i % 1000) + (i % 7 ? " " : ", ");
  directory.write("text.txt", text);
  prepare("out", words("--input text.txt --vocab-size 300 --val-fraction 0"));
  EXPECT_EQ(tokenizer("out")->decode(tokens("out", "train")), text);
}

TEST_F(PrepareData, WritesWideTokensForAWideVocabulary) {
  std::string text;
  for (int id = 0; id < 66'000; ++id) {
    text += {static_cast<char>(0xF0), static_cast<char>(0x90 | id >> 12),
             static_cast<char>(0x80 | (id >> 6 & 0x3F)), static_cast<char>(0x80 | (id & 0x3F))};
  }
  directory.write("text.txt", text);
  prepare("[out]", {"--input", "text.txt", "--tokenizer", "char"});
  EXPECT_EQ(tokenizer("[out]")->decode(tokens("[out]", "train")) +
                tokenizer("[out]")->decode(tokens("[out]", "val")),
            text);
  EXPECT_EQ(fs::file_size(directory.path() / "[out]/train_000000.bin"),
            1024 + 4 * tokens("[out]", "train").size());
  CorpusConfig config;
  config.data = (directory.path() / "[out]").string();
  SingleProcess alone;
  EXPECT_EQ(load_shared_corpus(alone, config, 16, 1).validation.size(), 6600);
}

TEST_F(PrepareData, TakesMoreFilesThanMayBeOpen) {
  for (int i = 0; i < 300; ++i) directory.write("part" + std::to_string(i) + ".txt", "text");
  ASSERT_EQ(
      shell(concat("ulimit -n 64 && '", STAGEGPT_BIN_DIR,
                   "/prepare_data' --input 'part*.txt' --vocab-size 257 --val-fraction 0 --output out")),
      0)
      << read_bytes(directory.path() / "out.log");
  EXPECT_EQ(tokens("out", "train").size(), 300u * 4 + 299);
}

}  // namespace
}  // namespace stagegpt::test
