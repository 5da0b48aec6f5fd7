// Reads a profile, and checks it against Chrome's trace-event format: the keys that each kind of event needs,
// spans of a row that are nested, begins and ends of asynchronous spans, names of all processes and rows.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace stagegpt::test {

struct TraceSpan {
  std::string name, category;
  double begin = 0, end = 0;  // microseconds
  int process = 0, row = 0;
  bool asynchronous = false;
  nlohmann::json args;

  double duration() const { return end - begin; }
  bool contains(const TraceSpan& other) const { return begin <= other.begin && other.end <= end; }
};

struct Trace {
  std::vector<TraceSpan> spans;
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> rows;
  nlohmann::json facts;  // otherData

  std::vector<TraceSpan> named(const std::string& name, int process = 0) const;
  std::vector<TraceSpan> of(const std::string& category, int process = 0) const;
};

// Fails the test, naming the event, where the text violates the format.
Trace parse_trace(const std::string& text);
Trace read_trace(const std::filesystem::path& file);

}  // namespace stagegpt::test
