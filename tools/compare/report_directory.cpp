#include "tools/compare/report_directory.h"

#include <algorithm>
#include <array>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/file.h"
#include "tools/compare/report_parts.h"
#include "tools/compare/runner.h"

namespace stagegpt::compare {
namespace {

namespace fs = std::filesystem;

constexpr const char *kFlag = "--output", *kResults = "results.json", *kPage = "index.html";
constexpr std::array<const char*, 4> kOwn = {kResults, kPage, kRuns, kProfiles};

bool is_own(const std::string& name) {
  return std::ranges::any_of(kOwn,
                             [&](const char* own) { return name == own || name == concat(own, ".tmp"); });
}

// Whether this file exists and is the results.json of a comparison.
bool is_results(const fs::path& path) {
  try {
    return parse_json(MappedFile(path, kFlag).text()).value("format", "") == kFormat;
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

ReportDirectory::ReportDirectory(fs::path path, bool overwrite) : path_(std::move(path)) {
  std::error_code error;
  if (!fs::exists(path_, error)) return;
  if (!fs::is_directory(path_, error)) user_error(kFlag, ": ", path_, " is not a directory");
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    names.push_back(entry.path().filename());
  }
  if (error) user_error(kFlag, ": cannot read ", path_, ": ", error.message());
  const auto foreign = std::ranges::find_if_not(names, is_own);
  if (foreign != names.end()) user_error(kFlag, ": ", path_, " is not empty: it contains \"", *foreign, "\"");
  if (names.empty()) return;
  if (!is_results(path_ / kResults))
    user_error(kFlag, ": ", path_, " is not empty, and contains no comparison");
  if (!overwrite) user_error(kFlag, ": ", path_, " contains a comparison; --overwrite replaces it");
}

void ReportDirectory::begin() const {
  try {
    make_directories(path_);
    for (const char* name : kOwn) fs::remove_all(path_ / name);
    for (const char* name : {kRuns, kProfiles}) make_directories(path_ / name);
  } catch (const std::runtime_error& error) {
    user_error(kFlag, ": ", error.what());
  }
}

void ReportDirectory::write(const Comparison& comparison) const {
  replace_file(path_ / kResults, json_text(results_json(comparison), 1));
  replace_file(path_ / kPage, page(comparison));
}

}  // namespace stagegpt::compare
