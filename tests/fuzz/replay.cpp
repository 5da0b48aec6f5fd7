// Runs a fuzz target over the files of a directory, in order of their names.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "tests/fuzz/fuzz_target.h"

namespace {

namespace fs = std::filesystem;

std::vector<fs::path> files_in(const fs::path& directory) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::ranges::sort(files);
  return files;
}

void replay(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> read{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::uint8_t> bytes(read.begin(),
                                        read.end());  // as long as the file: no read past its end
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) stagegpt::user_error("expected one argument, the directory of a corpus");
  const std::vector<fs::path> files = files_in(argv[1]);
  if (files.empty()) stagegpt::user_error(argv[1], " holds no file");
  for (const fs::path& path : files) {
    std::cerr << path.filename().string() << std::endl;  // the last one is where it ended
    replay(path);
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "failed: " << error.what() << '\n';
  return 1;
}
