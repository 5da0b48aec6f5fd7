#include "common/profile/profile.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/base/json.h"
#include "common/comm/agreement.h"
#include "common/io/file.h"
#include "common/profile/trace_events.h"

namespace stagegpt {
namespace {

constexpr int kRoundTrips = 50;

void answer(RankGroup& group, int rank, const std::function<std::int64_t()>& now) {
  for (int i = 0; i < kRoundTrips; ++i) {
    std::int64_t time = 0;
    group.receive(std::as_writable_bytes(std::span(&time, 1)), rank);
    time = now();
    group.send(std::as_bytes(std::span(&time, 1)), rank);
  }
}

ClockOffset ask(RankGroup& group, const std::function<std::int64_t()>& now) {
  ClockOffset best{.error = std::numeric_limits<std::int64_t>::max()};
  for (int i = 0; i < kRoundTrips; ++i) {
    const std::int64_t begin = now();
    std::int64_t time = begin;
    group.send(std::as_bytes(std::span(&time, 1)), 0);
    group.receive(std::as_writable_bytes(std::span(&time, 1)), 0);
    const std::int64_t trip = now() - begin, error = (trip + 1) / 2;
    if (error < best.error) best = {begin + trip / 2, time - (begin + trip / 2), error};
  }
  return best;
}

namespace fs = std::filesystem;

// The texts of all ranks, on rank 0.
std::vector<std::string> gather_texts(RankGroup& group, const std::string& own) {
  std::vector<std::string> texts = {own};
  const std::vector<std::uint64_t> sizes = gather<std::uint64_t>(group, own.size());
  if (!group.is_root()) {
    group.send(std::as_bytes(std::span(own)), 0);
    return {};
  }
  for (int rank = 1; rank < group.size(); ++rank) {
    texts.emplace_back(sizes[static_cast<std::size_t>(rank)], '\0');
    group.receive(std::as_writable_bytes(std::span(texts.back())), rank);
  }
  return texts;
}

}  // namespace

ClockOffset measure_clock_offset(RankGroup& group, const std::function<std::int64_t()>& now) {
  ClockOffset own{.at = now()};
  for (int rank = 1; rank < group.size(); ++rank) {
    if (group.is_root()) answer(group, rank, now);
    if (group.rank() == rank) own = ask(group, now);
  }
  return own;
}

std::int64_t time_of_root(std::int64_t t, const ClockOffset& first, const ClockOffset& last) {
  if (last.at <= first.at) return t + first.offset;
  const double share = static_cast<double>(t - first.at) / static_cast<double>(last.at - first.at);
  const auto change = static_cast<double>(last.offset - first.offset);
  return t + first.offset + std::llround(std::clamp(share, 0.0, 1.0) * change);
}

OpTimeline::OpTimeline(Backend& backend, Timeline& timeline, WorkTimer* timer)
    : OpObserver(backend), timeline_(timeline), timer_(timer) {
  if (timer_ == nullptr) return;
  constexpr std::size_t kUsual = 4096;  // ops of a step
  launched_.reserve(kUsual);
  backend.synchronize();
  timer_->mark();
  first_mark_ = Timeline::now();
}

void OpTimeline::around(const OpCall& op, const std::function<void()>& kernel) {
  TimelineSpan span{.name = op.name, .kind = SpanKind::op, .work = op.work};
  for (const Tensor* tensor : op.operands) {
    if (tensor->defined() && span.n_shapes < TimelineSpan::kMaxShapes)
      span.shapes[span.n_shapes++] = tensor->shape();
  }
  if (timer_ != nullptr) timer_->mark();
  timeline_.begin_range(op.name);
  span.begin = Timeline::now();
  kernel();
  span.end = Timeline::now();
  timeline_.end_range();
  if (timer_ != nullptr) {
    timer_->mark();
    launched_.push_back(span);
    launched_.back().kind = SpanKind::device;
    span.work = {};  // its time is that of the launches
  }
  timeline_.add(span);
}

void OpTimeline::finish() {
  if (timer_ == nullptr) return;
  const std::vector<double> seconds = timer_->take_intervals();  // alternately a pause and an op
  double time = 0;
  const auto after = [&](double interval) { return first_mark_ + std::llround(1e9 * (time += interval)); };
  for (std::size_t i = 0; i < launched_.size(); ++i) {
    launched_[i].begin = after(seconds[2 * i]);
    launched_[i].end = after(seconds[2 * i + 1]);
    timeline_.add(launched_[i]);
  }
}

void Profile::step(std::int64_t number, const std::function<void()>& body) {
  const StepRange& steps = config_.steps;
  if (number < steps.first || number > steps.last) return body();
  if (last_step_ == 0) begin();
  {
    OpTimeline ops(backend_, timeline_, device_timer_.get());
    timeline_.record(true);
    TimelineSpan span{.name = config_.unit, .kind = SpanKind::step, .begin = Timeline::now(), .step = number};
    timeline_.begin_range(config_.unit);
    body();
    timeline_.enter(kUnwatched);
    timeline_.end_range();
    span.end = Timeline::now();
    timeline_.add(span);
    ops.finish();
    timeline_.record(false);
  }
  last_step_ = number;
}

std::string Profile::description() const {
  const auto& [first, last] = config_.steps;
  if (last_step_ == 0)
    return concat("profile: none of the ", config_.unit, "s ", first, " to ", last, " was done");
  return concat("profile: ", config_.unit, "s ", first, " to ", last_step_, " in ", config_.file.string(),
                lost_ > 0 ? concat("; ", lost_, " spans were too many and are not in it; profile fewer ",
                                   config_.unit, "s")
                          : "");
}

void Profile::begin() {
  group_.enter("profile");
  clock_at_begin_ = measure_clock_offset(group_, Timeline::now);
  timeline_.clear();
  if (backend_.device_work()) device_timer_ = backend_.make_timer();
  group_.enter(kUnwatched);
}

void Profile::write() {
  if (last_step_ == 0 || std::exchange(written_, true)) return;
  group_.enter("profile");
  const ClockOffset clock = measure_clock_offset(group_, Timeline::now);
  const std::int64_t error = std::max(clock_at_begin_.error, clock.error);
  // The file's time begins with the earliest span of any rank. Because of the errors of the clocks, this may
  // not be rank 0's.
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (const TimelineSpan& span : timeline_.spans())
    earliest = std::min(earliest, time_of_root(span.begin, clock_at_begin_, clock));
  const std::int64_t begin = std::ranges::min(gather(group_, earliest));
  const std::string own =
      trace_events(timeline_.spans(), {group_.rank(), group_.size(), group_.host(group_.rank()), error},
                   [&](std::int64_t time) { return time_of_root(time, clock_at_begin_, clock) - begin; });
  const std::vector<std::int64_t> errors = gather(group_, error), lost = gather(group_, timeline_.lost());
  lost_ = std::accumulate(lost.begin(), lost.end(), std::int64_t{0});
  const std::vector<std::string> texts = gather_texts(group_, own);
  on_root(group_, [&] {
    const Json facts = {{concat("first_", config_.unit), config_.steps.first},
                        {concat("last_", config_.unit), last_step_},
                        {"ranks", group_.size()},
                        {"clock_error_ns", errors},
                        {"lost_spans", lost}};
    replace_file(config_.file, trace_file(texts, facts));
  });
  group_.enter(kUnwatched);
}

void profiled(Profile* profile, std::int64_t number, const std::function<void()>& body) {
  if (profile == nullptr) return body();
  profile->step(number, body);
  if (profile->is_complete()) profile->write();
}

void require_profile_file(const fs::path& file) {
  require_result_file(file, "--profile", "a profile", kTraceFileBegin);
}

}  // namespace stagegpt
