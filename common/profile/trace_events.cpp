#include "common/profile/trace_events.h"

#include <algorithm>
#include <map>

#include "common/base/json.h"

namespace stagegpt {
namespace {

// Rows of a process, in the order in which they are shown. Spans of one kind that overlap are divided among
// several rows, which are numbered from here.
constexpr int kHostRow = 1, kDataRow = 10, kCheckpointRow = 20, kDeviceRow = 30;

int first_row(const TimelineSpan& span) {
  switch (span.kind) {
    case SpanKind::data:
      return kDataRow;
    case SpanKind::checkpoint:
      return kCheckpointRow;
    case SpanKind::device:
      return kDeviceRow;
    default:
      return kHostRow;
  }
}

std::string row_name(int row) {
  if (row >= kDeviceRow) return "device";
  if (row >= kCheckpointRow) return "checkpoint thread";
  return row >= kDataRow ? "data thread" : "host";
}

const char* category(SpanKind kind) {
  switch (kind) {
    case SpanKind::step:
      return "step";
    case SpanKind::phase:
      return "phase";
    case SpanKind::op:
      return "op";
    case SpanKind::message:
    case SpanKind::collective:
      return "communication";
    case SpanKind::data:
      return "data";
    case SpanKind::checkpoint:
      return "checkpoint";
    case SpanKind::device:
      return "device";
  }
  return "";
}

double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

std::string peers_of(const TimelineSpan& span, const TraceProcess& process) {
  if (span.peer >= 0) return concat("rank ", span.peer, span.ranks > 0 ? concat(" of ", span.ranks) : "");
  return span.ranks > 0 ? concat(span.ranks, " of ", process.ranks, " ranks")
                        : concat("all ", process.ranks, " ranks");
}

Json arguments_of(const TimelineSpan& span, const TraceProcess& process) {
  Json args = Json::object();
  const auto ns = static_cast<double>(span.end - span.begin);
  if (span.step > 0) args["number"] = span.step;
  if (span.n_shapes > 0) {
    std::string shapes;
    for (std::size_t i = 0; i < span.n_shapes; ++i) shapes += concat(i == 0 ? "" : " ", span.shapes[i]);
    args["shapes"] = shapes;
  }
  if (span.work.flops > 0) args["FLOP"] = span.work.flops;
  if (span.work.bytes > 0) args["bytes"] = span.work.bytes;
  if (span.work.flops > 0 && ns > 0) args["GFLOP/s"] = span.work.flops / ns;
  if (span.work.bytes > 0 && ns > 0) args["GB/s"] = span.work.bytes / ns;
  if (span.kind == SpanKind::message || span.kind == SpanKind::collective) {
    args["peers"] = peers_of(span, process);
  }
  return args;
}

Json metadata(const TraceProcess& process, int row, const char* what, const Json& args) {
  return {{"name", what}, {"ph", "M"}, {"pid", process.rank}, {"tid", row}, {"args", args}};
}

std::string name_of(const TraceProcess& process) {
  return concat("rank ", process.rank, " of ", process.ranks, process.host.empty() ? "" : ", ", process.host);
}

// Parents before their children.
std::vector<TimelineSpan> sorted(std::span<const TimelineSpan> spans) {
  std::vector<TimelineSpan> sorted(spans.begin(), spans.end());
  std::ranges::stable_sort(sorted, [](const TimelineSpan& a, const TimelineSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  return sorted;
}

// Gives background work a row on which it overlaps with no other span.
class Rows {
 public:
  int row_of(const TimelineSpan& span) {
    int row = first_row(span);
    if (row == kHostRow) return row;  // the spans of one thread are nested
    while (ends_[row] > span.begin) ++row;
    ends_[row] = span.end;
    return row;
  }

 private:
  std::map<int, std::int64_t> ends_;
};

}  // namespace

std::string trace_events(std::span<const TimelineSpan> spans, const TraceProcess& process,
                         const std::function<std::int64_t(std::int64_t)>& nanoseconds) {
  std::string text;
  const auto add = [&](const Json& event) { text += (text.empty() ? "" : ",\n") + event.dump(); };
  add(metadata(process, 0, "process_name", {{"name", name_of(process)}}));
  add(metadata(process, 0, "process_sort_index", {{"sort_index", process.rank}}));
  if (process.rank > 0) {
    add(metadata(process, 0, "process_labels",
                 {{"labels", concat("clock within ", microseconds(process.clock_error), " us of rank 0")}}));
  }
  Rows rows;
  std::map<int, bool> named;
  std::int64_t id = 0;
  for (const TimelineSpan& span : sorted(spans)) {
    const int row = rows.row_of(span);
    if (!std::exchange(named[row], true)) {
      add(metadata(process, row, "thread_name", {{"name", row_name(row)}}));
      add(metadata(process, row, "thread_sort_index", {{"sort_index", row}}));
    }
    Json event = {{"name", span.name}, {"cat", category(span.kind)}};
    const std::int64_t begin = nanoseconds(span.begin), end = nanoseconds(span.end);
    if (span.kind != SpanKind::collective) {
      event.update({{"ph", "X"}, {"ts", microseconds(begin)}, {"dur", microseconds(end - begin)}});
      event.update({{"pid", process.rank}, {"tid", row}, {"args", arguments_of(span, process)}});
      add(event);
      continue;
    }
    // A local id: Perfetto shows messages with a global one apart from their process.
    event.update({{"ph", "b"}, {"id2", {{"local", concat("message ", ++id)}}}});
    event.update({{"ts", microseconds(begin)}, {"pid", process.rank}, {"tid", row}});
    event["args"] = arguments_of(span, process);
    add(event);
    event.update({{"ph", "e"}, {"ts", microseconds(end)}});
    event.erase("args");
    add(event);
  }
  return text;
}

std::string trace_file(std::span<const std::string> events_of_ranks, const Json& facts) {
  std::string text = concat(kTraceFileBegin, facts.dump(), ",\n\"traceEvents\":[\n");
  bool first = true;
  for (const std::string& events : events_of_ranks) {
    text += (std::exchange(first, false) ? "" : ",\n") + events;
  }
  return text + "\n]}\n";
}

}  // namespace stagegpt
