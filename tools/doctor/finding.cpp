#include "tools/doctor/finding.h"

#include <algorithm>

#include "common/base/json.h"

namespace stagegpt {
namespace {

constexpr std::size_t kMarkWidth = 9, kSubjectWidth = 18;

const char* name_of(Finding::Mark mark) {
  constexpr const char* kNames[] = {"ok", "note", "problem"};
  return kNames[static_cast<int>(mark)];
}

// Pads text with spaces.
std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

}  // namespace

Findings examine(const std::string& subject, const std::function<Findings()>& probe) {
  try {
    return probe();
  } catch (const std::exception& error) {
    return {{subject, Finding::Mark::note, std::string("check failed: ") + error.what(),
             "training may work nevertheless"}};
  }
}

std::string to_text(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += padded(name_of(finding.mark), kMarkWidth) + padded(finding.subject, kSubjectWidth);
    text += finding.found + '\n';
    if (!finding.advice.empty()) {
      text += std::string(kMarkWidth + kSubjectWidth, ' ') + "-> " + finding.advice + '\n';
    }
  }
  return text;
}

std::string to_json_text(const Findings& findings) {
  Json list = Json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"subject", finding.subject},
                    {"mark", name_of(finding.mark)},
                    {"found", finding.found},
                    {"advice", or_null(finding.advice)},
                    {"prevents_stage0", finding.prevents_stage0}});
  }
  return json_text({{"stage0_runs", stage0_runs(findings)}, {"findings", list}});
}

bool stage0_runs(const Findings& findings) {
  return std::ranges::none_of(findings, &Finding::prevents_stage0);
}

}  // namespace stagegpt
