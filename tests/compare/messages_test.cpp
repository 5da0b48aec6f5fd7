// Error messages about the files and flags of a comparison. Each is caused once, in process, and must name
// the mistake.
#include <gtest/gtest.h>

#include <functional>

#include "common/base/json.h"
#include "tests/support/program.h"
#include "tools/compare/divergence.h"
#include "tools/compare/experiment.h"
#include "tools/compare/report_directory.h"
#include "tools/compare/stage_programs.h"
#include "tools/compare/trial.h"

namespace stagegpt::compare::test {
namespace {

void expect_said(const std::function<void()>& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "nothing is said; expected: " << text;
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos)
        << error.what() << "\nexpected: " << text;
  }
}

TEST(ComparisonMessages, NameTheMistake) {
  const stagegpt::test::ScratchDirectory directory;
  const std::string header = R"({"a name": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})";
  const std::uint64_t length = header.size();
  const std::string trace = directory.write(
      "trace", std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + "data");
  expect_said([&] { TraceFile{trace}; }, "not a trace: unexpected tensor name 'a name'");
  const std::vector<std::string> stray = {"stray"};
  expect_said([&] { FlagList::parse(stray); }, "after --: expected flags of stageN_train, not 'stray'");
  expect_said([] { FlagList::of_settings(nlohmann::json::array()); }, "expected a JSON object");
  expect_said([] { Launcher{" "}; }, "--mpirun: expected a command, got \"\"");
  expect_said([] { Launcher{"no-such-launcher -x"}; }, "--mpirun: no-such-launcher is not found");
  expect_said([] { parse_metrics("{\"step\": 7}\n"); }, "metrics.jsonl, line 1: expected step 1, got 7");
  expect_said([] { parse_metrics(""); }, "metrics.jsonl has no steps");
  expect_said([&] { ReportDirectory(trace, false); }, "is not a directory");
  expect_said([&] { ReportDirectory(directory.path(), false); }, "is not empty: it contains \"trace\"");
}

}  // namespace
}  // namespace stagegpt::compare::test
