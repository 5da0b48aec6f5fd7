// Error messages about files and settings. Each is caused once, in process, and must name the mistake.
// Messages about the command line are tested in tests/stages/bad_input_test.cpp.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <functional>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/run_directory.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/trainer_state.h"
#include "common/data/text_source.h"
#include "common/data/tokenizers/llmc_tokenizer.h"
#include "common/data/tokenizers/load_tokenizer.h"
#include "common/data/tokenizers/tokenizer_json.h"
#include "common/io/content_hash.h"
#include "tests/data/make_tokenizers.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

// The message of the exception that a call throws.
std::string said(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "nothing";
}

void expect_said(const std::function<void()>& call, const std::string& text) {
  const std::string message = said(call);
  EXPECT_NE(message.find(text), std::string::npos) << message << "\nexpected: " << text;
}

std::string safetensors(const std::string& header, std::size_t data = 0) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header +
         std::string(data, '\0');
}

TEST(Messages, OfSafetensors) {
  const std::pair<std::string, const char*> cases[] = {
      {"1234567", "not safetensors: the file has only 7 bytes"},
      {safetensors("[]"), "the header is not a JSON object"},
      {safetensors(R"({"__metadata__": {"a": 1}})"), "__metadata__ is not an object of strings"},
      {safetensors(R"({"a": {"dtype": "F32", "shape": []}})"),
       "tensor 'a': expected exactly dtype, shape and data_offsets"},
      {safetensors(R"({"a": {"dtype": "F33", "shape": [], "data_offsets": [0, 4]}})", 4),
       "the dtype 'F33' is unknown"},
      {safetensors(R"({"a": {"dtype": "F32", "shape": [4611686018427387904], "data_offsets": [0, 4]}})", 4),
       "the shape is too large"},
      {safetensors(R"({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})", 4),
       "an extent is 1.5, expected a non-negative integer"},
      {safetensors(R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 2, 4]}})", 4),
       "expected two data_offsets, not 3"},
      {safetensors(R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4),
       "the data_offsets are 0 and 4, dtype and shape need 8 bytes"},
  };
  for (const auto& [file, text] : cases)
    expect_said([&] { parse_safetensors(std::as_bytes(std::span(file))); }, text);
}

TEST(Messages, OfTrainerStates) {
  TrainerState state;
  state.step = 1;
  const nlohmann::json good = nlohmann::json::parse(to_json_text(state));
  const auto changed = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(pointer)] = value;
    return [text = json.dump()] { parse_trainer_state(text); };
  };
  EXPECT_EQ(said(changed("/step", 2)), "nothing");
  expect_said(changed("/version", 99), "not version 1 or 2 of '");
  expect_said(changed("/train_data/of", "files"), "'of' is neither 'ids' nor 'shards'");
  expect_said(changed("/schedule/kind", "sine"), "'kind' is not a learning-rate schedule");
  expect_said(changed("/schedule/min_lr", "low"), "'min_lr' is \"low\", expected a number");
  expect_said(changed("/step", -1), "'step' is -1, expected a non-negative integer");
  expect_said(changed("/step", std::uint64_t{1} << 40),
              "'step' is 1099511627776, expected at most 2147483648");
}

TEST(Messages, OfManifests) {
  const ScratchDirectory directory;
  directory.write("a", "some bytes");
  write_manifest(directory.path(), {file_entry(directory.path() / "a")});
  const std::string good = read_bytes(directory.path() / "manifest.json");
  const auto verify = [&] { verify_manifest(directory.path()); };
  EXPECT_EQ(said(verify), "nothing");
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
  json["files"][0]["file"] = "../a";
  expect_said([&] { parse_manifest(json.dump()); }, "'../a' is not the name of a file");
  json = nlohmann::json::parse(good);
  json["files"][0]["bytes"] = 10.5;
  expect_said([&] { parse_manifest(json.dump()); }, "'bytes' is 10.5, expected a non-negative integer");
}

TEST(Messages, OfHuggingFaceConfigurations) {
  const ScratchDirectory directory;
  nlohmann::json json = {{"model_type", "gpt2"}, {"vocab_size", 8}, {"n_positions", 8},
                         {"n_embd", 8},          {"n_layer", 1},    {"n_head", 1}};
  const auto read = [&] {
    directory.write("config.json", json.dump());
    read_config(directory.path(), "--model");
  };
  EXPECT_EQ(said(read), "nothing");
  json["add_cross_attention"] = true;
  expect_said(read, "'add_cross_attention': true is not supported, expected false");
  json["activation_function"] = "silu";
  expect_said(
      read,
      "'activation_function': \"silu\" is not supported, expected gelu_new, gelu_pytorch_tanh, gelu_fast, "
      "gelu or relu");
  json["n_layer"] = 0;
  expect_said(read, "'n_layer' is 0, expected 1 to");
}

TEST(Messages, OfTokenizers) {
  const nlohmann::json good = nlohmann::json::parse(tokenizer_json(*small_bpe()));
  const auto changed = [&](const std::function<void(nlohmann::json&)>& change) {
    return [change, json = good]() mutable {
      change(json);
      parse_tokenizer_json(json);
    };
  };
  EXPECT_EQ(said(changed([](nlohmann::json&) {})), "nothing");
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
      said(changed([](nlohmann::json& json) { json["model"]["merges"][1] = json["model"]["merges"][0]; })),
      "nothing");
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
  EXPECT_EQ(said([&] { TextSource({path}, "--data"); }),
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
  expect_said([&] { read_blocks(missing, PageCache::use, [](auto) {}); },
              "cannot read \"" + missing.string());
  expect_said([&] { file_identity(missing, "--data"); }, "--data: cannot open \"" + missing.string());
  expect_said([&] { natural_number(nlohmann::json(-1), "'bytes'"); },
              "'bytes' is -1, expected a non-negative integer");
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
