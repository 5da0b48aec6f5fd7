// Runs a fuzz target on the files of a directory, and on those in the archive DIRECTORY.tar, sorted by name.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<char>;

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Reads the files of a tar archive (POSIX ustar). Each file has a header of 512 bytes: its name is at byte 0,
// its size in octal digits at byte 124. The content follows, padded to a multiple of 512 bytes. An empty
// header marks the end.
void add_files_of(const fs::path& archive, std::map<std::string, Bytes>& files) {
  constexpr std::size_t kBlock = 512, kNameBytes = 100, kSizeAt = 124;
  const Bytes bytes = read(archive);
  const auto require = [&](std::size_t end) {
    if (end > bytes.size()) stagegpt::user_error(archive.string(), " is missing or cut short");
  };
  for (std::size_t at = 0;;) {
    require(at + kBlock);
    if (bytes[at] == '\0') return;
    const std::size_t size = std::strtoull(&bytes[at + kSizeAt], nullptr, 8);
    require(at + kBlock + size);
    const std::string name(&bytes[at], strnlen(&bytes[at], kNameBytes));
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at + kBlock);
    if (!files.emplace(name, Bytes(begin, begin + static_cast<std::ptrdiff_t>(size))).second) {
      stagegpt::user_error(archive.string(), ": ", name, " is in the directory, too");
    }
    at += kBlock + (size + kBlock - 1) / kBlock * kBlock;
  }
}

std::map<std::string, Bytes> files_of(const fs::path& directory) {
  std::map<std::string, Bytes> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file()) files[entry.path().filename().string()] = read(entry.path());
  }
  add_files_of(directory.string() + ".tar", files);
  return files;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) stagegpt::user_error("expected one argument, the directory of a corpus");
  const auto files = files_of(argv[1]);
  for (const auto& [name, content] : files) {
    std::cerr << name << std::endl;  // after a crash, the last name is the failing file
    const std::vector<std::uint8_t> bytes(content.begin(),
                                          content.end());  // exact size, to detect reads past the end
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "failed: " << error.what() << '\n';
  return 1;
}
