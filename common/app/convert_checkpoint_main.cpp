// convert_checkpoint: convert a model between a Hugging Face directory and llm.c's file.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <optional>

#include "common/app/command_line.h"
#include "common/app/started_once.h"
#include "common/app/trained_model.h"
#include "common/base/grouped.h"
#include "common/checkpoint/hugging_face_model.h"
#include "common/checkpoint/llmc_files.h"
#include "common/checkpoint/model_file.h"
#include "common/io/file.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

struct ConvertFlags {
  std::string input, output, precision = "f32";
  std::optional<std::string> tokenizer_path;

  void add(CommandLine& command_line) {
    command_line.group("Models");
    command_line.text("--input", input, kModelFormats);
    command_line.text("--output", output,
                      "llm.c's model file if it ends in .bin, else a directory to create; its name may end "
                      "in a version (gpt2.v2) or a slash, but in no other file ending");
    command_line.choice("--precision", precision, {"f32", "bf16"},
                        "precision of the weights in llm.c's file");
    command_line.text("--tokenizer-path", tokenizer_path,
                      "tokenizer for the directory (default: the input's): tokenizer.json, GPT-2's two "
                      "files, llm.c's file, or a directory that contains one of these");
  }
};

enum class Output { llmc_file, directory };

// Follows from the name. Throws UserError for the ending of a file format that is not written.
Output kind_of(const std::string& name) {
  if (name.ends_with('/')) return Output::directory;
  std::string ending = fs::path(name).extension();
  if (ending == ".bin") return Output::llmc_file;
  if (ending.starts_with(".v")) ending.erase(1, 1);
  const bool is_version = ending.find_first_not_of(".0123456789") == ending.npos;
  if (!is_version) {
    user_error("--output: expected llm.c's model file, NAME.bin, or a directory to create, not '", name,
               "'; a directory of that name is '", name, "/'");
  }
  return Output::directory;
}

// A file or directory under a temporary name, which is removed unless commit() gives it its own.
class Partial {
 public:
  explicit Partial(const fs::path& path)
      : path_(path), partial_(concat(path.string(), ".partial-", getpid())) {
    if (file_exists(path_)) user_error("--output: ", path_, " exists already; remove it, or name another");
  }
  ~Partial() {
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
  }
  Partial(const Partial&) = delete;
  Partial& operator=(const Partial&) = delete;

  const fs::path& path() const { return partial_; }
  void commit() const {
    fs::rename(partial_, path_);
    sync_directory(fs::absolute(path_).parent_path());
  }

 private:
  fs::path path_, partial_;
};

// Throws UserError where no file can be made.
void require_directory_above(const fs::path& path) {
  const fs::path directory = fs::absolute(path).parent_path();
  if (access((directory / "").c_str(), W_OK) == 0) return;
  user_error("--output: cannot write into ", directory, ": ", std::strerror(errno));
}

void write_directory(const ConvertFlags& flags, const ModelFile& model, const fs::path& output) {
  const std::unique_ptr<Tokenizer> tokenizer = load_model_tokenizer(model, "--input", flags.tokenizer_path);
  if (!tokenizer) std::cerr << "note: the directory gets no tokenizer; --tokenizer-path adds one\n";
  const Partial partial(output);
  try {
    make_directories(partial.path());
  } catch (const std::runtime_error& error) {
    user_error("--output: ", error.what());
  }
  write_hugging_face(partial.path(), model.config, model.values, tokenizer.get());
  sync_directory(partial.path());
  partial.commit();
}

int convert_checkpoint_main(int argc, char** argv) {
  require_started_once();
  ConvertFlags flags;
  CommandLine command_line(argv[0], "Convert a model between Hugging Face's and llm.c's formats.",
                           std::nullopt);
  command_line.version(built_version());
  flags.add(command_line);
  if (!command_line.parse(argc, argv)) return 0;
  require_model_path(flags.input, "--input");
  if (flags.output.empty()) user_error("--output: expected a file or directory to create");
  const Output kind = kind_of(flags.output);
  const ModelFile model = open_model(flags.input, "--input");
  const fs::path output = (fs::path(flags.output) / "").parent_path();
  if (kind == Output::llmc_file) {
    require_directory_above(output);
    const Partial partial(output);
    write_llmc_model(partial.path(), model.config, model.values,
                     flags.precision == "bf16" ? LlmcPrecision::bf16 : LlmcPrecision::f32);
    partial.commit();
  } else {
    if (flags.precision != "f32")
      user_error("--precision: expected f32 for a directory, not '", flags.precision,
                 "'; llm.c's file, NAME.bin, can have it");
    write_directory(flags, model, output);
  }
  std::cout << output.string() << ": " << grouped(gpt2_parameter_table(model.config).numel())
            << " parameters, vocabulary " << grouped(model.config.vocab_size) << ", context "
            << model.config.block_size << '\n';
  return 0;
}

}  // namespace
}  // namespace stagegpt

int main(int argc, char** argv) {
  return stagegpt::run_program(argv[0], [&] { return stagegpt::convert_checkpoint_main(argc, argv); });
}
