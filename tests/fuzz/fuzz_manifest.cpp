#include "common/checkpoint/manifest.h"
#include "tests/fuzz/fuzz_target.h"

using namespace stagegpt;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto use = [](const std::vector<FileEntry>& files) {
    for (const FileEntry& entry : files) {
      const std::string& name = entry.file;
      const bool stays_inside = name.find('/') == name.npos && name.find('\0') == name.npos && name != "..";
      check(stays_inside, "a file outside the directory is listed");
    }
  };
  return test::read_then_use([&] { return parse_manifest(test::text_of(data, size)); }, use);
}
