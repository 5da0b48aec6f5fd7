#include "common/profile/op_timeline.h"

#include <cmath>

namespace stagegpt {

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

}  // namespace stagegpt
