// prepare_data: text to token shards.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <thread>

#include "common/app/program_flags.h"
#include "common/app/started_once.h"
#include "common/base/error.h"
#include "common/base/grouped.h"
#include "common/base/json.h"
#include "common/data/find_files.h"
#include "common/data/prepared_data.h"
#include "common/data/text_source.h"
#include "common/io/content_hash.h"
#include "common/io/work_progress.h"

namespace stagegpt {
namespace {

struct PrepareFlags {
  std::vector<std::string> input;
  std::string text_field;
  TokenizerFlags tokenizer;
  std::string output;
  double val_fraction = 0.1;
  std::int64_t shard_tokens = 100'000'000;
  std::optional<std::int64_t> threads;
  bool json = false;

  void add(CommandLine& command_line);
};

void PrepareFlags::add(CommandLine& command_line) {
  command_line.group("Input");
  command_line.texts("--input", input,
                     "text files or glob patterns, also packed by gzip; each file is a document; - is "
                     "standard input");
  command_line.free_text("--text-field", text_field,
                         "read the files as JSON Lines: each line is a document, with its text in this field",
                         "NAME");
  tokenizer.add(command_line);
  command_line.group("Output");
  command_line.text("--output", output, "directory to create");
  command_line.real("--val-fraction", val_fraction, kBelowOne,
                    "fraction of the text, taken from its end, for validation");
  command_line.integer("--shard-tokens", shard_tokens, 1, TokenShard::kMaxTokens,
                       "maximum number of tokens in a file");
  command_line.toggle("--json", json, "print the manifest");
  command_line.group("Machine");
  command_line.integer("--threads", threads, 1, 1024, "threads (default: all cores)");
}

// Writes one part of the text; returns its entry in the manifest.
Json write_part(const std::string& name, TextRange range, const TextSource& text, const Tokenizer& tokenizer,
                TokenizeOptions options, PreparedDataWriter& writer) {
  ByteProgress progress(name);
  options.progress = std::ref(progress);
  writer.begin_part(name);
  tokenize(text, range, tokenizer, options, [&](std::span<const std::int32_t> ids) { writer.append(ids); });
  Json entry = {{"text_bytes", range.end - range.begin}};
  entry.update(writer.end_part());
  return entry;
}

Json prepare(const PrepareFlags& flags) {
  PreparedDataWriter writer(flags.output, flags.shard_tokens);
  std::vector<std::string> files;
  for (const std::string& input : flags.input) {
    const std::vector<std::string> found = input == "-" ? std::vector{input} : find_files(input, "--input");
    files.insert(files.end(), found.begin(), found.end());
  }
  const TextSource text(files, "--input",
                        {.spool_directory = writer.partial(),
                         .text_field = flags.text_field,
                         .any_bytes = flags.tokenizer.any_bytes()});
  TokenizeOptions options;
  options.threads =
      static_cast<int>(flags.threads.value_or(std::max(1u, std::thread::hardware_concurrency())));
  options.special = flags.tokenizer.special();
  std::unique_ptr<Tokenizer> tokenizer;
  {
    ByteProgress progress("vocabulary");
    options.progress = std::ref(progress);
    tokenizer = make_tokenizer(flags.tokenizer.choice(), text, options);
  }
  writer.write_tokenizer(*tokenizer);
  Json vocabulary = to_json(file_entry(writer.partial() / "tokenizer.json"));
  vocabulary.update({{"kind", tokenizer->kind()}, {"vocab_size", tokenizer->size()}});
  if (const auto end = tokenizer->end_of_text()) vocabulary["end_of_text"] = *end;

  Json inputs = Json::array();
  for (const TextSource::File& file : text.files())
    inputs.push_back({{"path", file.path}, {"bytes", file.bytes}, {"documents", file.documents}});
  const std::int64_t split = text.split(flags.val_fraction, special_in(options.special, *tokenizer));
  Json manifest = {
      {"tokenizer", std::move(vocabulary)},
      {"special_tokens", options.special == SpecialTokens::recognised ? "recognised" : "as text"},
      {"val_fraction", flags.val_fraction},
      {"inputs", std::move(inputs)},
      {"train", write_part("train", {0, split}, text, *tokenizer, options, writer)},
      {"val", write_part("val", {split, text.bytes()}, text, *tokenizer, options, writer)}};
  writer.commit(manifest);
  return manifest;
}

void print_summary(const Json& manifest, const std::string& directory) {
  std::cout << directory << ": " << manifest["tokenizer"]["kind"].get<std::string>() << ", vocabulary "
            << grouped(manifest["tokenizer"]["vocab_size"].get<std::int64_t>()) << '\n';
  for (const char* part : {"train", "val"}) {
    const auto bytes = manifest[part]["text_bytes"].get<double>(),
               tokens = manifest[part]["tokens"].get<double>();
    char line[160];
    std::snprintf(line, sizeof line, "%-5s  %zu file%s  %s tokens  %.2f bytes per token\n", part,
                  manifest[part]["shards"].size(), manifest[part]["shards"].size() == 1 ? "" : "s",
                  grouped(tokens).c_str(), tokens > 0 ? bytes / tokens : 0.0);
    std::cout << line;
  }
}

int prepare_data_main(int argc, char** argv) {
  require_started_once();
  PrepareFlags flags;
  CommandLine command_line(argv[0], "Turn text into token shards, for --data.", std::nullopt);
  command_line.version(built_version());
  flags.add(command_line);
  if (!command_line.parse(argc, argv)) return 0;
  if (flags.input.empty()) user_error("--input: expected text files");
  if (flags.output.empty()) user_error("--output: expected a directory to create");
  const Json manifest = prepare(flags);
  if (flags.json) {
    std::cout << json_text(manifest);
  } else {
    print_summary(manifest, flags.output);
  }
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_program(argv[0], [&] { return stagegpt::prepare_data_main(argc, argv); });
}
