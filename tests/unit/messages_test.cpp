// Error messages about files and settings. Each is caused once, in process, and must name the mistake.
// Messages about the command line are tested in tests/stages/bad_input_test.cpp, those about the files of a
// checkpoint in tests/checkpoint/.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <functional>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/run_directory.h"
#include "common/data/text_source.h"
#include "common/data/tokenizers/llmc_tokenizer.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/content_hash.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"
#include "tests/support/refusal.h"

namespace stagegpt::test {
namespace {

void expect_said(const std::function<void()>& call, const std::string& text) {
  const std::string message = failure(call);
  EXPECT_NE(message.find(text), std::string::npos) << message << "\nexpected: " << text;
}

TEST(Messages, OfManifests) {
  const ScratchDirectory directory;
  directory.write("a", "some bytes");
  write_manifest(directory.path(), {file_entry(directory.path() / "a")});
  const std::string good = read_bytes(directory.path() / "manifest.json");
  const auto verify = [&] { verify_manifest(directory.path()); };
  EXPECT_EQ(failure(verify), "");
  directory.write("a", "some bites");
  expect_said(verify, "is damaged: its hash differs from that in the manifest");
  directory.write("a", "some");
  expect_said(verify, "has 4 bytes, the manifest says 10");
  std::filesystem::remove(directory.path() / "a");
  expect_said(verify, "is missing: No such file");
  expect_said([&] { parse_manifest(good + " "); }, "it has been changed");
  nlohmann::json json = nlohmann::json::parse(good);
  json["version"] = 99;
  expect_said([&] { parse_manifest(json.dump()); }, "not version 1 of '");
  json = nlohmann::json::parse(good);
  json["files"][0]["bytes"] = 10.5;
  expect_said([&] { parse_manifest(json.dump()); }, "'bytes' is 10.5, expected a non-negative integer");
}

TEST(Messages, OfTokenizers) {
  const nlohmann::json good = nlohmann::json::parse(tokenizer_json(*small_bpe()));
  const auto changed = [&](const std::function<void(nlohmann::json&)>& change) {
    return [change, json = good]() mutable {
      change(json);
      parse_tokenizer_json(json);
    };
  };
  EXPECT_EQ(failure(changed([](nlohmann::json&) {})), "");
  expect_said(changed([](nlohmann::json& json) { json["added_tokens"][0]["id"] = -1; }),
              "an added token's id is -1, expected 0 to 2147483647");
  expect_said(changed([](nlohmann::json& json) { json["added_tokens"][0]["content"] = ""; }),
              "an added token is empty");
  expect_said(changed([](nlohmann::json& json) { json["decoder"]["type"] = "Metaspace"; }),
              "the decoder is not 'ByteLevel'");
  expect_said(changed([](nlohmann::json& json) { json["model"]["type"] = "Unigram"; }),
              "the model 'Unigram' is not supported, expected 'BPE' or 'WordLevel'");
  expect_said(changed([](nlohmann::json& json) { json["model"]["merges"][0] = "one"; }),
              "expected a merge (two tokens separated by a space), not 'one'");
  EXPECT_NE(
      failure(changed([](nlohmann::json& json) { json["model"]["merges"][1] = json["model"]["merges"][0]; })),
      "");
  const ScratchDirectory directory;
  directory.write("vocab.json", R"({"a": 0})");
  directory.write("merges.txt", "#version: 0.2\na b\nstray\n");
  expect_said([&] { load_tokenizer(directory.path(), "--tokenizer-path"); }, "line 3: expected a merge");
}

// Invalid vocabularies, which the project's own files cannot contain.
TEST(Messages, OfVocabularies) {
  const auto bpe = small_bpe();
  std::vector<Merge> merges = bpe->merges();
  merges[1].result = merges[0].result;
  expect_said([&] { BpeTokenizer(bpe->vocabulary(), merges); },
              "merge 2: its result is not the concatenation of its two tokens");
  Vocabulary vocabulary;
  vocabulary.tokens = {"a", "ab"};
  expect_said([&] { CharTokenizer{vocabulary}; }, "token 1 is not one character");
  expect_said([&] { WordTokenizer{vocabulary}; }, "a vocabulary of words needs the special token [UNK]");
  vocabulary.tokens = {"a"};
  expect_said([&] { llmc_tokenizer(CharTokenizer(vocabulary)); },
              "llm.c's format needs an end-of-text token, which this vocabulary does not have");
  expect_said([&] { llmc_tokenizer(*word_tokenizer(std::string(256, 'x'))); },
              "a token has 256 bytes, but llm.c's format allows 1 to ");
}

TEST(Messages, OfTokenizersThatAreNotThere) {
  const ScratchDirectory directory;
  const auto load = [&](const char* name) {
    return [path = directory.path() / name] { load_tokenizer(path, "--tokenizer-path"); };
  };
  expect_said(load("nowhere"), "/nowhere\" does not exist; scripts/download_gpt2.sh fetches GPT-2's");
  expect_said(load(""),
              " holds no tokenizer.json, encoder.json with vocab.bpe, vocab.json with merges.txt, or");
  directory.write("encoder.json", "{}");
  expect_said(load(""), "/vocab.bpe\" does not exist; scripts/download_gpt2.sh fetches GPT-2's");
}

// A socket is there, but cannot be opened.
TEST(Messages, OfATextThatCannotBeOpened) {
  const ScratchDirectory directory;
  const std::string path = directory.path() / "socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::ranges::copy(path, address.sun_path);
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  ASSERT_EQ(bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(failure([&] { TextSource({path}, "--data"); }),
            "--data: cannot open \"" + path + "\": No such device or address");
}

TEST(Messages, OfATextThatChanges) {
  const ScratchDirectory directory;
  const std::string path = directory.write("text.txt", "one text");
  const TextSource text({path}, "--data");
  directory.write("text.txt", "another text");
  BlockReader reader(text, text.all(), [](std::string_view block) { return block.size(); });
  expect_said([&] { reader.next(); }, "--data: \"" + path + "\" has changed while it was read");
}

TEST(Messages, OfFilesThatCannotBeRead) {
  const ScratchDirectory directory;
  const std::filesystem::path missing = directory.path() / "missing";
  expect_said([&] { file_identity(missing, "--data"); }, "--data: cannot open \"" + missing.string());
  // A directory can be opened, but not read as a file.
  expect_said(
      [&] { TextSource({directory.path().string()}, "--input", {.spool_directory = directory.path()}); },
      "is a directory");
}

// A run that is locked by another process cannot be opened.
TEST(Messages, OfRunsThatAreTaken) {
  const ScratchDirectory directory;
  const RunDirectory first = RunDirectory::create(directory.path() / "run");
  expect_said([&] { RunDirectory::create(directory.path() / "run"); }, "another process");
  // The directory exists, but the run has not begun.
  expect_said([&] { RunDirectory::open(directory.path() / "run"); }, "/run\" has no run");
}

}  // namespace
}  // namespace stagegpt::test
