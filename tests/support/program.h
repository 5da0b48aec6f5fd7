// Runs the project's programs as a user does.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace stagegpt::test {

struct ProgramResult {
  int exit_code = -1;  // -1 if a signal ended the program
  std::string output;  // standard output
  std::string errors;  // standard error
};

struct RunOptions {
  std::filesystem::path input_from = {};  // a file as its standard input; if empty, it has that of the test
  std::filesystem::path output_to = {};   // a file for its standard output; if empty, the output is captured
  std::vector<std::pair<std::string, std::string>> environment = {};
  // When standard error contains this text, the signals are sent one after the other, or `instead` is called.
  std::string signal_after = {};
  std::vector<int> signals = {};
  std::function<void(pid_t)> instead = {};
};

// Runs build/<preset>/bin/<program>, or a program with an absolute path, in `directory`, and waits for it.
ProgramResult run_program(const std::string& program, const std::vector<std::string>& arguments,
                          const std::filesystem::path& directory, const RunOptions& options = {});

// Expects exit code 0.
ProgramResult expect_done(ProgramResult result);
// Expects that standard error contains `text`.
void expect_said(const ProgramResult& result, const std::string& text);
// Expects this exit code too.
void expect_failure(const ProgramResult& result, int exit_code, const std::string& text);

// The arguments of a command line, none of which has a space.
std::vector<std::string> words(const std::string& command_line);
std::vector<std::string> operator+(std::vector<std::string> a, const std::vector<std::string>& b);
// Merges flags with values; those of `more` replace flags of the same name.
std::vector<std::string> with_flags(std::vector<std::string> flags, const std::vector<std::string>& more);

// An empty directory that is removed with its contents at the end.
class ScratchDirectory {
 public:
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes a file into it and returns its path.
  std::string write(const std::string& name, const std::string& bytes) const;

 private:
  std::filesystem::path path_;
};

std::string read_bytes(const std::filesystem::path& path);

}  // namespace stagegpt::test
