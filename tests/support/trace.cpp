#include "tests/support/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

namespace stagegpt::test {
namespace {

using Events = std::vector<nlohmann::json>;

void expect_keys(const nlohmann::json& event) {
  const std::string kind = event.value("ph", "");
  const std::map<std::string, std::vector<std::string>> keys = {{"X", {"name", "cat", "ts", "dur", "tid"}},
                                                                {"b", {"name", "cat", "ts", "id2"}},
                                                                {"e", {"name", "cat", "ts", "id2"}},
                                                                {"M", {"name", "args"}}};
  ASSERT_TRUE(keys.contains(kind)) << event;
  ASSERT_TRUE(event.contains("pid") && event["pid"].is_number_integer()) << event;
  for (const std::string& key : keys.at(kind)) ASSERT_TRUE(event.contains(key)) << key << " in " << event;
  for (const char* number : {"ts", "dur"}) {
    ASSERT_TRUE(!event.contains(number) || (event[number].is_number() && event[number] >= 0)) << event;
  }
  for (const char* text : {"name", "cat"}) {
    ASSERT_TRUE(!event.contains(text) || (event[text].is_string() && event[text] != "")) << event;
  }
}

// Times are whole nanoseconds, written in microseconds.
double nanoseconds(const nlohmann::json& time) { return std::round(1e3 * time.get<double>()); }

TraceSpan span_of(const nlohmann::json& event) {
  const double begin = nanoseconds(event["ts"]);
  return {.name = event["name"],
          .category = event["cat"],
          .begin = begin / 1e3,
          .end = (begin + (event["ph"] == "X" ? nanoseconds(event["dur"]) : 0)) / 1e3,
          .process = event["pid"],
          .row = event.value("tid", 0),
          .asynchronous = event["ph"] != "X",
          .args = event.value("args", nlohmann::json::object())};
}

// In one row, a span is inside another one or beside it.
void expect_nested(const std::vector<TraceSpan>& spans) {
  std::map<std::pair<int, int>, std::vector<TraceSpan>> open;
  std::map<std::pair<int, int>, double> last;
  for (const TraceSpan& span : spans) {
    if (span.asynchronous) continue;
    const std::pair row(span.process, span.row);
    EXPECT_GE(span.begin, last[row]) << span.name << ": begins before the span above it in the file";
    last[row] = span.begin;
    auto& stack = open[row];
    while (!stack.empty() && stack.back().end <= span.begin) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_TRUE(stack.back().contains(span)) << span.name << " leaves " << stack.back().name;
    }
    stack.push_back(span);
  }
}

}  // namespace

std::vector<TraceSpan> Trace::named(const std::string& name, int process) const {
  std::vector<TraceSpan> found;
  for (const TraceSpan& span : spans)
    if (span.name == name && span.process == process) found.push_back(span);
  return found;
}

std::vector<TraceSpan> Trace::of(const std::string& category, int process) const {
  std::vector<TraceSpan> found;
  for (const TraceSpan& span : spans)
    if (span.category == category && span.process == process) found.push_back(span);
  return found;
}

Trace parse_trace(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  Trace trace;
  EXPECT_TRUE(json.is_object() && json.contains("traceEvents")) << text.substr(0, 200);
  if (!json.is_object()) return trace;
  trace.facts = json.value("otherData", nlohmann::json::object());
  std::map<std::pair<int, std::string>, std::size_t> open;  // messages, by process and id
  const auto id_of = [](const nlohmann::json& event) {
    return std::pair(event["pid"].get<int>(), event["id2"].value("local", ""));
  };
  for (const nlohmann::json& event : json["traceEvents"]) {
    expect_keys(event);
    if (testing::Test::HasFatalFailure()) return trace;
    if (event["ph"] == "M") {
      if (event["name"] == "process_name") trace.processes[event["pid"]] = event["args"]["name"];
      if (event["name"] == "thread_name")
        trace.rows[{event["pid"], event["tid"]}] = event["args"]["name"].get<std::string>();
    } else if (event["ph"] == "e") {
      const auto begin = open.find(id_of(event));
      EXPECT_NE(begin, open.end()) << "an end without a begin: " << event;
      if (begin == open.end()) continue;
      trace.spans[begin->second].end = nanoseconds(event["ts"]) / 1e3;
      EXPECT_GE(trace.spans[begin->second].duration(), 0) << event;
      open.erase(begin);
    } else {
      if (event["ph"] == "b") {
        EXPECT_TRUE(open.emplace(id_of(event), trace.spans.size()).second) << "two begins: " << event;
      }
      trace.spans.push_back(span_of(event));
    }
  }
  EXPECT_TRUE(open.empty()) << open.size() << " begins without an end";
  for (const TraceSpan& span : trace.spans) {
    EXPECT_TRUE(trace.processes.contains(span.process)) << span.name;
    EXPECT_TRUE(trace.rows.contains({span.process, span.row})) << span.name;
  }
  expect_nested(trace.spans);
  return trace;
}

Trace read_trace(const std::filesystem::path& file) {
  std::ifstream in(file);
  EXPECT_TRUE(in.is_open()) << file;
  std::ostringstream text;
  text << in.rdbuf();
  return parse_trace(text.str());
}

}  // namespace stagegpt::test
