// A mapped file that shrinks ends the program with an error message.
#include "common/io/mapping_faults.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <csignal>

#include "common/io/file.h"
#include "tests/support/program.h"

namespace stagegpt::test {
namespace {

class MappingFaultsDeathTest : public testing::Test {
 protected:
  MappingFaultsDeathTest() { directory_.write("a", std::string(8192, 'a')); }

  ScratchDirectory directory_;
  const std::filesystem::path path_ = directory_.path() / "a";
};

char last_of(const MappedFile& file) {
  const volatile char* text = file.text().data();
  return text[file.text().size() - 1];
}

TEST_F(MappingFaultsDeathTest, name_the_file_and_exit_with_1) {
  const auto shrink = [&] {
    explain_mapping_faults("a_program");
    const MappedFile other(directory_.write("b", "other"), "--data"), file(path_, "--data");
    std::filesystem::resize_file(path_, 1);
    last_of(file);
  };
  EXPECT_EXIT(shrink(), testing::ExitedWithCode(1),
              "a_program: cannot read \".*/a\": it was truncated after it was opened");
}

// The handler must ignore mappings that have ended and mappings of other code.
TEST_F(MappingFaultsDeathTest, are_left_alone_elsewhere) {
  const auto shrink = [&] {
    std::signal(SIGBUS, SIG_DFL);  // removes a sanitizer's handler
    explain_mapping_faults("a_program");
    { const MappedFile file(path_, "--data"); }
    const FileDescriptor file = open_to_read(path_, "--data");
    const volatile char* text =
        static_cast<const char*>(mmap(nullptr, 8192, PROT_READ, MAP_PRIVATE, file.get(), 0));
    std::filesystem::resize_file(path_, 1);
    return text[8191];
  };
  EXPECT_EXIT(shrink(), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace stagegpt::test
