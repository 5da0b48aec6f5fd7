// Writes a timeline in Chrome's trace-event format, which Perfetto and chrome://tracing open. Layout:
// docs/file_formats.md. Google, "Trace Event Format", 2016.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/json_fwd.h"
#include "common/profile/timeline.h"

namespace stagegpt {

// A rank as a process of the trace.
struct TraceProcess {
  int rank = 0, ranks = 1;
  std::string host;              // may be empty
  std::int64_t clock_error = 0;  // ns; of its times against those of rank 0
};

// The events of one rank: JSON objects, separated by a comma and a line break. `nanoseconds` converts a time
// of this rank to that of the trace, and keeps the order of times.
std::string trace_events(std::span<const TimelineSpan> spans, const TraceProcess& process,
                         const std::function<std::int64_t(std::int64_t)>& nanoseconds);

// The file: the events of all ranks, and facts about the whole.
inline constexpr std::string_view kTraceFileBegin = "{\"displayTimeUnit\":\"ms\",\n\"otherData\":";
std::string trace_file(std::span<const std::string> events_of_ranks, const Json& facts);

}  // namespace stagegpt
