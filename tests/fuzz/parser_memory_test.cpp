// The peak memory of parsing worst-case files is at most a small multiple of the file's size.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <new>
#include <string>
#include <vector>

#include "common/app/command_line.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/checkpoint/hugging_face_config.h"
#include "common/checkpoint/llmc_files.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/safetensors.h"
#include "common/checkpoint/trainer_state.h"
#include "common/data/tokenizers/bpe_tokenizer.h"
#include "common/data/tokenizers/llmc_tokenizer.h"
#include "common/data/tokenizers/splitter.h"
#include "common/data/tokenizers/tokenizer_json.h"

namespace {

// Bytes on the heap: the current number and the maximum.
std::size_t live_bytes = 0, peak_bytes = 0;

void* allocate(std::size_t size) {
  void* memory = std::malloc(size);
  if (!memory) throw std::bad_alloc();
  live_bytes += malloc_usable_size(memory);
  peak_bytes = std::max(peak_bytes, live_bytes);
  return memory;
}

void release(void* memory) {
  if (memory) live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(std::size_t size) { return allocate(size); }
void* operator new[](std::size_t size) { return allocate(size); }
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }

namespace stagegpt::test {
namespace {

constexpr std::size_t kFileBytes = 1'000'000;

// Limits of the peak memory for each kind of file, in bytes of memory per byte of the file. Each comment
// gives the largest measured value, and the file below that needs it.
constexpr double kJson = 40;              // 32.4: empty objects
constexpr double kTokenizerJson = 45;     // 39.6: a normalizer, which the message quotes
constexpr double kLlmcTokenizer = 45;     // 36.9: byte-pair encoding
constexpr double kSafetensors = 30;       // 25.2: a shape with many dimensions
constexpr double kDescription = 45;       // 39.6: an array as a size, which the message quotes
constexpr std::size_t kNothing = 65'536;  // bytes, for any size of the file
// The limit of the parsing time of a file. The measured time is 0.2 s; with quadratic time it would be
// minutes.
constexpr double kCpuSeconds = 10;

struct FileCase {
  const char* name;
  double most;  // one of the constants above
  std::function<std::string()> make;
  std::function<void(std::string_view)> read;
};

void PrintTo(const FileCase& file, std::ostream* out) { *out << file.name; }

// Items separated by commas, until the text has `bytes` bytes.
std::string listed(const std::function<std::string(std::size_t)>& item, std::size_t bytes = kFileBytes) {
  std::string text;
  for (std::size_t i = 0; text.size() < bytes; ++i) text += concat(i == 0 ? "" : ",", item(i));
  return text;
}

std::string repeated(const char* item) {
  return listed([&](std::size_t) { return item; });
}

// A different short name of letters for each number.
std::string name_of(std::size_t i) {
  std::string name;
  for (; name.empty() || i > 0; i /= 26) name += static_cast<char>('a' + i % 26);
  return name;
}

std::string with_length(const std::string& header) {
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
}

std::string llmc_header(std::vector<std::int32_t> numbers) {
  numbers.resize(256);
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof numbers[0]};
}

// A BPE vocabulary of all tokens of one and two bytes, and as many of three bytes as fit. Each longer token
// is a merge.
std::string llmc_bpe() {
  std::string tokens;
  std::int32_t n = 0;
  const auto add = [&](const std::string& token) {
    tokens += static_cast<char>(token.size()) + token;
    ++n;
  };
  for (int i = 0; i < 256; ++i) add({static_cast<char>(i)});
  for (int i = 0; i < 65536; ++i) add({static_cast<char>(i), static_cast<char>(i >> 8)});
  for (int i = 0; tokens.size() < kFileBytes; ++i) {
    add({static_cast<char>(i), static_cast<char>(i >> 8), static_cast<char>(i >> 16)});
  }
  add("<end>");
  return llmc_header({20240328, 2, n, n - 1}) + tokens;
}

std::string llmc_words() {
  std::string tokens;
  std::int32_t n = 0;
  const auto add = [&](const std::string& token) {
    tokens += static_cast<char>(token.size()) + token;
    ++n;
  };
  add("[UNK]");
  for (std::size_t i = 0; tokens.size() < kFileBytes; ++i) add(name_of(i));
  return llmc_header({20240328, 2, n, 0}) + tokens;
}

// Byte-level BPE of letters. `merge` formats the merge of two tokens.
std::string bpe_json(const std::function<std::string(const std::string&, const std::string&)>& merge) {
  constexpr std::size_t kLetters = 26, kPairs = kLetters * kLetters;
  nlohmann::json vocabulary = nlohmann::json::object();
  std::string merges;
  const auto original = bpe_vocabulary({});
  const auto parts = BpeTokenizer(original, {}).hugging_face();
  for (const auto& [token, id] : parts.at("model").at("vocab").items()) {
    if (token != kEndOfText) vocabulary[token] = id;
  }
  const auto letter = [](std::size_t i) { return std::string(1, static_cast<char>('a' + i % 26)); };
  std::size_t bytes = 0;
  const auto add = [&](const std::string& left, const std::string& right) {
    const std::size_t id = vocabulary.size();
    vocabulary[left + right] = id;
    if (!merges.empty()) merges += ',';
    merges += merge(left, right);
    bytes += left.size() + right.size() + 10;
  };
  for (std::size_t i = 0; i < kPairs; ++i) add(letter(i), letter(i / kLetters));
  std::vector<std::string> before;  // tokens that become one letter longer in each round
  for (std::size_t i = 0; i < kPairs; ++i) before.push_back(letter(i) + letter(i / kLetters));
  while (bytes + merges.size() < kFileBytes) {
    std::vector<std::string> longer;
    for (const std::string& left : before) {
      for (std::size_t i = 0; i < kLetters && bytes + merges.size() < kFileBytes; ++i) {
        add(left, letter(i));
        longer.push_back(left + letter(i));
      }
    }
    before = std::move(longer);
  }
  return R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
         R"("model":{"type":"BPE","vocab":)" +
         vocabulary.dump() + R"(,"merges":[)" + merges + "]}}";
}

std::string word_json() {
  return R"({"added_tokens":[{"id":0,"content":"[UNK]","special":true}],"pre_tokenizer":{"type":"Split",)"
         R"("pattern":{"Regex":)" +
         nlohmann::json(Splitter::words().pattern()).dump() +
         R"(}},"model":{"type":"WordLevel","vocab":{"[UNK]":0,)" +
         listed([](std::size_t i) { return concat('"', name_of(i), "\":", i + 1); }) + "}}}";
}

std::string deep(std::size_t depth) {
  return '[' + repeated((std::string(depth, '[') + std::string(depth, ']')).c_str()) + ']';
}

void json(std::string_view text) { parse_json(text); }
void tokenizer(std::string_view text) { parse_tokenizer_json(parse_json(text)); }
void llmc(std::string_view file) { parse_llmc_tokenizer(std::as_bytes(std::span(file))); }
void tensors(std::string_view file) { parse_safetensors(std::as_bytes(std::span(file))); }
void model(std::string_view file) { parse_llmc_model(std::as_bytes(std::span(file)), "--model"); }
void config(std::string_view text) { parse_config(parse_json(text)); }

const FileCase kCases[] = {
    {"numbers", kJson, [] { return '[' + repeated("0") + ']'; }, json},
    {"empty_objects", kJson, [] { return '[' + repeated("{}") + ']'; }, json},
    {"empty_arrays", kJson, [] { return '[' + repeated("[]") + ']'; }, json},
    {"empty_texts", kJson, [] { return '[' + repeated("\"\"") + ']'; }, json},
    {"small_objects", kJson, [] { return '[' + repeated(R"({"":0})") + ']'; }, json},
    {"objects_of_objects", kJson, [] { return '[' + repeated(R"({"":{"":{}}})") + ']'; }, json},
    {"arrays_of_one", kJson, [] { return '[' + repeated("[0]") + ']'; }, json},
    {"keys", kJson, [] { return '{' + listed([](auto i) { return '"' + name_of(i) + "\":0"; }) + '}'; },
     json},
    {"keys_of_objects", kJson,
     [] { return '{' + listed([](auto i) { return '"' + name_of(i) + "\":{}"; }) + '}'; }, json},
    {"long_keys_alike", kJson,
     [] {
       return '{' + listed([](auto i) { return '"' + std::string(60, 'k') + name_of(i) + "\":0"; }) + '}';
     },
     json},
    {"key_twice", kJson,
     [] { return '{' + listed([](auto i) { return '"' + name_of(i) + "\":0"; }) + R"(,"a":0})"; }, json},
    {"long_text", kJson, [] { return '"' + std::string(kFileBytes, 'x') + '"'; }, json},
    {"escaped_text", kJson, [] { return '"' + repeated("\\u00e9") + '"'; }, json},
    {"long_key", kJson, [] { return "{\"" + std::string(kFileBytes, 'x') + "\":0}"; }, json},
    {"long_number", kJson, [] { return std::string(kFileBytes, '9'); }, json},
    {"deep", kJson, [] { return deep(60); }, json},
    {"too_deep", kJson, [] { return std::string(kFileBytes, '['); }, json},

    {"tokenizer_words", kTokenizerJson, word_json, tokenizer},
    {"tokenizer_bpe", kTokenizerJson,
     [] { return bpe_json([](const auto& a, const auto& b) { return '"' + a + ' ' + b + '"'; }); },
     tokenizer},
    {"tokenizer_bpe_pairs", kTokenizerJson,
     [] { return bpe_json([](const auto& a, const auto& b) { return "[\"" + a + "\",\"" + b + "\"]"; }); },
     tokenizer},
    {"tokenizer_normalizer", kTokenizerJson, [] { return R"({"normalizer":[)" + repeated("{}") + "]}"; },
     tokenizer},
    {"tokenizer_added", kTokenizerJson,
     [] {
       return R"({"added_tokens":[)" + listed([](auto i) {
                return R"({"special":true,"id":)" + std::to_string(i) + R"(,"content":")" + name_of(i) +
                       "\"}";
              }) +
              "]}";
     },
     tokenizer},
    {"tokenizer_pre_tokenizer", kTokenizerJson,
     [] {
       return R"({"model":{"type":"BPE","vocab":{},"merges":[]},"decoder":{"type":"ByteLevel"},)"
              R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"x":[)" +
              repeated("{}") + "]}}";
     },
     tokenizer},
    {"tokenizer_merges_alone", kTokenizerJson,
     [] {
       return R"({"model":{"type":"BPE","vocab":{},"merges":[)" + repeated(R"("a b")") +
              R"(]},"decoder":{"type":"ByteLevel"},)"
              R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})";
     },
     tokenizer},

    {"llmc_bpe", kLlmcTokenizer, llmc_bpe, llmc},
    {"llmc_words", kLlmcTokenizer, llmc_words, llmc},
    {"llmc_many_announced", kLlmcTokenizer,
     [] {
       return llmc_header({20240328, 2, INT32_MAX, 0}) + std::string(kFileBytes, 1);
     },
     llmc},

    {"tensors_of_nothing", kSafetensors,
     [] {
       return with_length('{' + listed([](auto i) {
                            return '"' + name_of(i) + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
                          }) +
                          '}');
     },
     tensors},
    {"tensor_of_many_extents", kSafetensors,
     [] {
       return with_length(R"({"a":{"dtype":"U8","shape":[)" + repeated("0") + R"(],"data_offsets":[0,0]}})");
     },
     tensors},
    {"metadata", kSafetensors,
     [] {
       return with_length(R"({"__metadata__":{)" +
                          listed([](auto i) { return '"' + name_of(i) + "\":\"\""; }) + "}}");
     },
     tensors},

    {"config", kDescription, [] { return R"({"model_type":"gpt2","n_layer":[)" + repeated("{}") + "]}"; },
     config},
    {"config_activation", kDescription,
     [] {
       return R"({"model_type":"gpt2","vocab_size":1,"n_positions":1,"n_layer":1,"n_head":1,"n_embd":1,)"
              R"("activation_function":")" +
              std::string(kFileBytes, 'x') + "\"}";
     },
     config},
    {"manifest", kDescription,
     [] {
       return R"({"format":"stagegpt checkpoint","version":1,"files":[)" +
              repeated(R"({"file":"a","bytes":0,"xxh3_128":""})") + "]}";
     },
     [](std::string_view text) { parse_manifest(text); }},
    {"trainer_state", kDescription,
     [] { return R"({"format":"stagegpt trainer state","version":1,"step":[)" + repeated("{}") + "]}"; },
     [](std::string_view text) { parse_trainer_state(text); }},
    {"settings", kDescription, [] { return "{\"steps\":0,\"" + std::string(kFileBytes, 'x') + "\":0}"; },
     [](std::string_view text) {
       std::int64_t steps = 0;
       CommandLine command_line("program", "", std::nullopt);
       command_line.integer("--steps", steps, 0, 9, "");
       command_line.apply(parse_json(text));
     }},
    {"settings_text", kDescription,
     [] { return R"({"activation":")" + std::string(kFileBytes, 'x') + "\"}"; },
     [](std::string_view text) {
       std::string activation = "relu";
       CommandLine command_line("program", "", std::nullopt);
       command_line.choice("--activation", activation, {"relu", "gelu"}, "");
       command_line.apply(parse_json(text));
     }},
};

// The peak number of bytes on the heap while `file` is parsed, minus the bytes before.
std::size_t peak_of(const std::function<void(std::string_view)>& read, std::string_view file) {
  const std::size_t before = live_bytes;
  peak_bytes = before;
  try {
    read(file);
  } catch (const UserError&) {
  }
  return peak_bytes - before;
}

class ParserMemory : public testing::TestWithParam<FileCase> {};

TEST_P(ParserMemory, IsASmallMultipleOfTheFile) {
  const std::string file = GetParam().make();
  const std::clock_t begin = std::clock();
  const double factor =
      static_cast<double>(peak_of(GetParam().read, file)) / static_cast<double>(file.size());
  EXPECT_LE(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kCpuSeconds);
  std::cout << factor << " bytes of memory for a byte of the file\n";
  EXPECT_LE(factor, GetParam().most);
}

INSTANTIATE_TEST_SUITE_P(Files, ParserMemory, testing::ValuesIn(kCases),
                         [](const auto& test) { return test.param.name; });

TEST(ParserMemoryOfData, IsNothing) {
  const std::string header = R"({"a":{"dtype":"F32","shape":[250000],"data_offsets":[0,1000000]}})";
  EXPECT_LE(peak_of(tensors, with_length(header) + std::string(kFileBytes, '\0')), kNothing);
  // The largest model that a header may specify; the file contains no parameters.
  EXPECT_LE(peak_of(model, llmc_header({20240326, 3, 1 << 20, 1 << 24, 1 << 10, 1 << 16, 1 << 16, 1 << 24})),
            kNothing);
}

}  // namespace
}  // namespace stagegpt::test
