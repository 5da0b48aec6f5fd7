#include "stage2_cuda/emulation/profile/source_lines.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "common/base/error.h"
#include "common/system/subprocess.h"

// Where the program is loaded; defined by the linker.
extern "C" const char __executable_start;

namespace stagegpt::gpu::emulation {
namespace {

constexpr std::size_t kAtOnce = 1000;  // instructions in one command line

// From "/tree/stage2_cuda/kernels/a.cuh:12 (discriminator 3)".
SourceLine parsed(std::string_view text) {
  const std::size_t colon = text.rfind(':', text.find(" ("));
  SourceLine line;
  if (colon == std::string_view::npos) return line;
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), line.line);
  return source_line(text.substr(0, colon), line.line);
}

bool is_kernel_source(const SourceLine& line) {
  const bool ours = line.file.starts_with("stage2_cuda/") || line.file.starts_with("tests/");
  return ours && !line.file.starts_with("stage2_cuda/emulation/") && line.line > 0;
}

// Reads addr2line's answers: a line with an address, then its places, from the innermost on.
void add_answers(std::map<Instruction, LineChain>& all, const std::vector<Instruction>& callers,
                 std::size_t next, const std::string& answers) {
  LineChain* chain = nullptr;
  std::istringstream in(answers);
  for (std::string answer; std::getline(in, answer);) {
    if (answer.starts_with("0x")) {
      chain = next < callers.size() ? &all[callers[next++]] : nullptr;
    } else if (const SourceLine line = parsed(answer); chain != nullptr && is_kernel_source(line)) {
      chain->insert(chain->begin(), line);
    }
  }
}

}  // namespace

std::map<Instruction, LineChain> lines_of(const std::vector<Instruction>& callers) {
  std::map<Instruction, LineChain> all;
  for (const Instruction caller : callers) all[caller];  // also those without an answer
  if (!find_program("addr2line")) return all;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (std::size_t begin = 0; begin < callers.size(); begin += kAtOnce) {
    Subprocess command{.argv = {"addr2line", "-a", "-i", "-e", program}};
    const std::size_t end = std::min(begin + kAtOnce, callers.size());
    for (std::size_t i = begin; i < end; ++i) {
      const auto offset = static_cast<const char*>(callers[i]) - &__executable_start - 1;
      command.argv.push_back(concat("0x", std::hex, offset));
    }
    add_answers(all, callers, begin, run_subprocess(command).output);
  }
  return all;
}

SourceLine source_line(std::string_view path, int line) {
  for (const std::string_view folder : {"stage2_cuda/", "tests/"}) {
    if (const std::size_t begin = path.rfind(folder); begin != std::string_view::npos) {
      path.remove_prefix(begin);
      break;
    }
  }
  return {std::string(path), line};
}

std::string to_string(const LineChain& chain) {
  std::string text;
  for (const SourceLine& line : chain) {
    if (!text.empty()) text += " > ";
    text += concat(std::filesystem::path(line.file).filename().string(), ':', line.line);
  }
  return text.empty() ? "?" : text;
}

std::vector<std::string> text_of(const std::string& file) {
  std::ifstream in(std::filesystem::path(STAGEGPT_SOURCE_DIR) / file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<Excerpt> excerpts_of(const std::set<SourceLine>& lines) {
  constexpr int kMostBetween = 30;
  std::vector<Excerpt> excerpts;
  std::vector<std::string> text;  // of the last excerpt's file
  for (const SourceLine& place : lines) {
    const bool same_file = !excerpts.empty() && excerpts.back().file == place.file;
    if (!same_file) text = text_of(place.file);
    const auto next = [&] { return excerpts.back().first + static_cast<int>(excerpts.back().lines.size()); };
    if (!same_file || place.line - next() > kMostBetween) excerpts.push_back({place.file, place.line, {}});
    while (next() <= place.line) {
      const auto index = static_cast<std::size_t>(next()) - 1;
      excerpts.back().lines.push_back(index < text.size() ? text[index] : "");
    }
  }
  return excerpts;
}

}  // namespace stagegpt::gpu::emulation
