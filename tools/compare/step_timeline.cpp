#include "tools/compare/step_timeline.h"

#include <algorithm>
#include <limits>
#include <map>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/io/file.h"

namespace stagegpt::compare {
namespace {

constexpr int kHostRow = 1;  // of trace_events.cpp
constexpr std::uint64_t kMostRanks = 65536;

// A span of the file. Times are milliseconds of the file's clock.
struct Event {
  std::string name, category, id;
  int rank = 0, row = 0;
  double begin = 0, end = 0;
  std::int64_t step = 0;
};

struct Events {
  std::vector<Event> spans;     // complete ones
  std::vector<Event> messages;  // from start to completion, whatever the host does
  std::map<std::pair<int, int>, std::string> row_names;
  int ranks = 0;
  double clock_error_ms = 0;
};

int rank_of(const Json& json) {
  const std::uint64_t rank = natural_number(json.at("pid"), "pid");
  if (rank >= kMostRanks) user_error("expected ranks below ", kMostRanks, ", got pid ", rank);
  return static_cast<int>(rank);
}

// The row of an event, or the number of a step.
int number_of(const Json& json, std::string_view what) {
  const std::uint64_t number = natural_number(json, what);
  if (number > std::numeric_limits<int>::max()) user_error("expected a smaller ", what, " than ", number);
  return static_cast<int>(number);
}

Event event_of(const Json& json) {
  const double begin = json.at("ts").get<double>() / 1e3, duration = json.value("dur", 0.0) / 1e3;
  if (duration < 0) user_error("a duration of ", duration, " ms");
  const Json args = json.value("args", Json::object());
  return {.name = json.at("name").get<std::string>(),
          .category = json.at("cat").get<std::string>(),
          .id = json.contains("id2") ? json["id2"].at("local").get<std::string>() : "",
          .rank = rank_of(json),
          .row = number_of(json.at("tid"), "tid"),
          .begin = begin,
          .end = begin + duration,
          .step = args.contains("number") ? number_of(args["number"], "number") : 0};
}

Events read_events(const Json& file) {
  Events events;
  std::map<std::pair<int, std::string>, Event> begun;
  for (const Json& json : file.at("traceEvents")) {
    const std::string kind = json.at("ph").get<std::string>();
    if (kind == "M") {
      if (json.at("name") == "thread_name") {
        const std::pair row(rank_of(json), number_of(json.at("tid"), "tid"));
        events.row_names[row] = json.at("args").at("name").get<std::string>();
      }
      continue;
    }
    Event event = event_of(json);
    events.ranks = std::max(events.ranks, event.rank + 1);
    if (kind == "X") {
      events.spans.push_back(event);
    } else if (kind == "b") {
      begun[{event.rank, event.id}] = event;
    } else if (kind == "e") {
      const auto begin = begun.find({event.rank, event.id});
      if (begin == begun.end()) user_error("'", event.id, "' ends without a begin");
      begin->second.end = event.begin;
      events.messages.push_back(begin->second);
    }
  }
  for (const Json& ns : file.at("otherData").value("clock_error_ns", Json::array()))
    events.clock_error_ms = std::max(events.clock_error_ms, ns.get<double>() / 1e6);
  return events;
}

// A step on all ranks.
struct Step {
  std::int64_t number = 0;
  std::vector<Event> of_rank;

  double begin() const { return std::ranges::min(of_rank, {}, &Event::begin).begin; }
  double end() const { return std::ranges::max(of_rank, {}, &Event::end).end; }
  double ms() const { return end() - begin(); }
};

std::vector<Step> steps_of(const Events& events) {
  std::map<std::int64_t, Step> steps;
  for (const Event& span : events.spans) {
    if (span.category != "step" || span.step == 0) continue;
    Step& step = steps[span.step];
    step.number = span.step;
    step.of_rank.resize(static_cast<std::size_t>(events.ranks));
    step.of_rank[static_cast<std::size_t>(span.rank)] = span;
  }
  std::vector<Step> all;
  for (auto& [number, step] : steps) {
    for (const Event& span : step.of_rank) {
      if (span.step == 0) user_error("step ", number, " is missing on a rank");
    }
    all.push_back(std::move(step));
  }
  return all;
}

// A blocking call of a group or communicator ends when the other ranks have done their part.
bool is_wait(const std::string& name) {
  return name.starts_with("wait: ") || name.ends_with(" (host)") || name == "barrier" ||
         name == "broadcast" || name == "exchange";
}

StepSpan::Kind kind_of(const Event& event) {
  if (event.category == "phase") return StepSpan::Kind::phase;
  if (event.category == "op") return StepSpan::Kind::op;
  if (event.category != "communication") return StepSpan::Kind::background;
  return is_wait(event.name) ? StepSpan::Kind::wait : StepSpan::Kind::message;
}

// Without spans that are inside another one, such as the additions of a ring.
std::vector<StepSpan> outer(std::vector<StepSpan> spans) {
  std::ranges::stable_sort(spans, [](const StepSpan& a, const StepSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.ms > b.ms;
  });
  constexpr double kRounding = 1e-6;  // the file has whole nanoseconds
  std::vector<StepSpan> kept;
  for (const StepSpan& span : spans) {
    if (kept.empty() || span.begin > kept.back().end() - kRounding) kept.push_back(span);
  }
  return kept;
}

// The times in which at least one of the spans is.
std::vector<StepSpan> united(std::vector<StepSpan> spans) {
  std::ranges::stable_sort(spans, {}, &StepSpan::begin);
  std::vector<StepSpan> all;
  for (const StepSpan& span : spans) {
    if (all.empty() || span.begin > all.back().end()) {
      all.push_back(span);
    } else {
      all.back().ms = std::max(all.back().end(), span.end()) - all.back().begin;
      if (all.back().name != span.name) all.back().name = "messages";
    }
  }
  return all;
}

double sum(const std::vector<StepSpan>& spans) {
  double ms = 0;
  for (const StepSpan& span : spans) ms += span.ms;
  return ms;
}

class StepReader {
 public:
  StepReader(const Events& events, const Step& step) : events_(events), step_(step) {}

  RankTimeline of_rank(int rank) const {
    const Event& own = step_.of_rank[static_cast<std::size_t>(rank)];
    RankTimeline timeline;
    std::map<int, std::vector<StepSpan>> rows;
    for (const Event& event : events_.spans) {
      if (event.rank != rank || event.category == "step") continue;
      if (event.row != kHostRow) {
        if (overlaps(event)) rows[event.row].push_back(span_of(event));
      } else if (own.begin <= event.begin && event.begin < own.end) {
        (event.category == "phase" ? timeline.phases : timeline.host).push_back(span_of(event));
      }
    }
    timeline.host = outer(std::move(timeline.host));
    for (auto& [row, spans] : rows) timeline.rows.push_back({name_of(rank, row), std::move(spans)});
    for (const Event& event : events_.messages) {
      if (event.rank == rank && overlaps(event)) timeline.messages.push_back(span_of(event));
    }
    timeline.messages = united(std::move(timeline.messages));
    return timeline;
  }

 private:
  bool overlaps(const Event& event) const { return event.begin < step_.end() && event.end > step_.begin(); }
  std::string name_of(int rank, int row) const {
    const auto name = events_.row_names.find({rank, row});
    return name == events_.row_names.end() ? concat("row ", row) : name->second;
  }
  // Cut at both ends of the step.
  StepSpan span_of(const Event& event) const {
    const double begin = std::max(event.begin, step_.begin()), end = std::min(event.end, step_.end());
    return {.name = event.name, .kind = kind_of(event), .begin = begin - step_.begin(), .ms = end - begin};
  }

  const Events& events_;
  const Step& step_;
};

StepTimeline timeline_of(const Json& file) {
  const Events events = read_events(file);
  std::vector<Step> steps = steps_of(events);
  if (steps.empty()) user_error("no steps");
  std::ranges::stable_sort(steps, {}, &Step::ms);
  const Step& median = steps[steps.size() / 2];
  if (!(median.ms() > 0)) user_error("step ", median.number, " takes no time");
  StepTimeline timeline{.step = median.number,
                        .recorded = static_cast<std::int64_t>(steps.size()),
                        .ms = median.ms(),
                        .clock_error_ms = events.clock_error_ms,
                        .ranks = {}};
  const StepReader reader(events, median);
  for (int rank = 0; rank < events.ranks; ++rank) timeline.ranks.push_back(reader.of_rank(rank));
  return timeline;
}

}  // namespace

PhaseMs RankTimeline::phase_ms() const {
  PhaseMs ms = {};
  for (const StepSpan& phase : phases) {
    const auto known = std::ranges::find(kPhases, phase.name);
    if (known != kPhases.end()) ms[static_cast<std::size_t>(known - kPhases.begin())] += phase.ms;
  }
  return ms;
}

double RankTimeline::waiting_ms() const {
  double ms = 0;
  for (const StepSpan& span : host) ms += span.kind == StepSpan::Kind::wait ? span.ms : 0;
  return ms;
}

double RankTimeline::message_ms() const { return sum(messages); }

double RankTimeline::overlap_ms() const {
  double ms = 0;
  for (const StepSpan& phase : phases) {
    if (phase.name != "backward") continue;
    for (const StepSpan& message : messages)
      ms += std::max(0.0, std::min(phase.end(), message.end()) - std::max(phase.begin, message.begin));
  }
  return ms;
}

StepTimeline read_step_timeline(const std::filesystem::path& profile) {
  const MappedFile file(profile, "profile");
  return naming(profile, [&] {
    const Json json = parse_json(file.text());
    return read_json([&] { return timeline_of(json); });
  });
}

}  // namespace stagegpt::compare
