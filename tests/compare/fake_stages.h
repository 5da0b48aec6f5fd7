// Fake stages and a fake mpirun (shell scripts), to test compare_stages without training.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "common/base/error.h"
#include "tests/support/program.h"

namespace stagegpt::compare::test {

namespace fs = std::filesystem;

// The behaviour of a fake program. Each field is a piece of a shell script; $run is the directory of the run.
struct FakeProgram {
  std::string help =
      "echo '  --data FILE'; echo '  --steps N'; echo '  --threads N'; echo '  --reproducible'; "
      "echo '  --trace-steps N'";
  std::string dry_run = "echo \"$name: a model of $name\" >&2; echo 'data: some text, 9 tokens' >&2";
  std::string config = "echo '{\"n_layer\": null, \"derived\": {\"n_layer\": 7}}'";
  std::string train = "";  // runs before the result files are written; `exit 3` makes the training fail
};

// A text with each `from` replaced.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// A test with a folder of fake programs that is first in PATH. Each call of a program adds a line to the file
// `calls`.
class FakeStages : public testing::Test {
 protected:
  FakeStages() : path_(std::getenv("PATH")) {
    setenv("PATH", (directory_.path().string() + ':' + path_).c_str(), 1);
  }
  ~FakeStages() override { setenv("PATH", path_.c_str(), 1); }

  fs::path folder() const { return directory_.path(); }

  std::string script(const std::string& name, const std::string& text) const {
    const std::string path = directory_.write(name, "#!/bin/sh\n" + text + '\n');
    fs::permissions(path, fs::perms::owner_all);
    return path;
  }

  void stage(const std::string& name, const FakeProgram& program = {}) const {
    script(name, "folder='" + folder().string() + "'; name=" + name + R"(
echo "$name $*" >> "$folder/calls"
for word in "$@"; do
  [ "$before" = --run-dir ] && run=$word
  before=$word
done
case " $* " in
*" --help "*) )" + program.help +
                     R"( ;;
*" --dry-run "*) )" + program.dry_run +
                     R"( ;;
*" --print-config "*) )" +
                     program.config + R"( ;;
*)
mkdir -p "$run/latest" "$run/best" "$run/checkpoints"
echo weights > "$run/latest/model.safetensors"
cp "$folder/$name.metrics" "$run/metrics.jsonl"
[ -e "$folder/$name.traces" ] && cp -r "$folder/$name.traces" "$run/traces"
echo "note: of $name" >&2
echo "machine: that of $name" >&2
)" + program.train + "\n;;\nesac");
    metrics(name, {4, 3, 2});
  }

  // Writes the metrics of a stage's training: the losses, and gradient norms of an eighth of the loss.
  void metrics(const std::string& stage, const std::vector<double>& losses) const {
    std::ostringstream lines;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      lines << "{\"step\":" << i + 1 << ",\"tokens\":" << 64 * (i + 1) << ",\"loss\":" << losses[i]
            << ",\"grad_norm\":" << losses[i] / 8
            << R"(,"seconds":0.5,"ms":{"data":1,"forward":2,"backward":3,"communication":4,"optimizer":5},)"
            << "\"peak_memory_bytes\":" << 1048576 - i << "}\n";
    }
    directory_.write(stage + ".metrics", lines.str());
  }

  void mpirun(const std::string& version = "mpirun (Open MPI) 9.9\\nmore of it") const {
    script("mpirun", "if [ \"$1\" = --version ]; then printf '" + version + "\\n'; exit; fi\ncalls='" +
                         folder().string() + R"(/calls'
printf 'mpirun' >> "$calls"
while [ "$1" != -np ]; do printf ' %s' "$1" >> "$calls"; shift; done
printf ' -np %s: ' "$2" >> "$calls"
FAKE_RANKS=$2; export FAKE_RANKS
shift 2
exec "$@")");
  }

  // The calls since the last call of this function, with the folder's name removed.
  std::string calls() const {
    const fs::path file = folder() / "calls";
    const std::string text = replaced(stagegpt::test::read_bytes(file), folder().string() + '/', "");
    fs::remove(file);
    return text;
  }

  // A text in which FOLDER stands for the folder's name.
  std::string without_folder(std::string text) const {
    return replaced(std::move(text), folder().string(), "FOLDER");
  }

  stagegpt::test::ScratchDirectory directory_;

 private:
  std::string path_;
};

// The message of the Error that a call throws.
template <class Error, class Call>
std::string message(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "(nothing)";
}

}  // namespace stagegpt::compare::test
