// Linked into test programs with STAGEGPT_MUTANTS: records which mutants each test of a process reaches. For
// each test it writes a file in the directory STAGEGPT_MUTANTS_TESTS; the file's name is that of the test,
// with % for /.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/mutations/switch.h"

namespace stagegpt::mutants {
namespace {

constexpr const char* kReached = "STAGEGPT_MUTANTS_REACHED";  // inherited by child processes

class Recorder final : public testing::EmptyTestEventListener {
 public:
  explicit Recorder(std::string directory)
      : directory_(std::move(directory)), start_(std::getenv(kReached)) {}

 private:
  void OnTestStart(const testing::TestInfo& test) override {
    std::string name = std::string(test.test_suite_name()) + "." + test.name();
    std::ranges::replace(name, '/', '%');
    const std::string path = directory_ + "/" + name;
    std::ofstream(path) << std::string(std::filesystem::file_size(start_), '\0');
    record_in(path);
  }
  void OnTestEnd(const testing::TestInfo&) override { record_in(start_); }

  static void record_in(const std::string& path) {
    setenv(kReached, path.c_str(), 1);
    reached = mapped(path.c_str());
  }

  std::string directory_, start_;
};

[[maybe_unused]] const bool kAppended = [] {
  const char* directory = std::getenv("STAGEGPT_MUTANTS_TESTS");
  if (directory != nullptr) testing::UnitTest::GetInstance()->listeners().Append(new Recorder(directory));
  return true;
}();

}  // namespace
}  // namespace stagegpt::mutants
