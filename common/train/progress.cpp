#include "common/train/progress.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

namespace stagegpt {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

}  // namespace

Progress::Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step)
    : first_(first), steps_(steps), tokens_per_step_(tokens_per_step) {}

void Progress::step(const StepReport& report, std::optional<double> validation_loss) {
  constexpr std::int64_t kPlainLines = 40;
  last_ = report;
  training_seconds_ += report.seconds.total();
  if (validation_loss) validation_loss_ = validation_loss;
  const std::int64_t done = report.step + 1, interval = std::max<std::int64_t>(1, steps_ / kPlainLines);
  const bool plain = validation_loss || done == first_ + 1 || done % interval == 0;
  status_.show(plain, [&](std::size_t width) {
    return line(status_.is_terminal() ? validation_loss_ : validation_loss, width);
  });
}

void Progress::note(const std::string& text) {
  status_.end();
  std::cerr << text << '\n';
}

double Progress::tokens_per_second() const {
  if (training_seconds_ == 0) return 0;
  return static_cast<double>((last_.step + 1 - first_) * tokens_per_step_) / training_seconds_;
}

std::string Progress::line(std::optional<double> validation_loss, std::size_t width) const {
  const std::int64_t done = last_.step + 1;
  const double left =
      seconds_since(start_) / static_cast<double>(done - first_) * static_cast<double>(steps_ - done);
  const std::string head = format("step %lld/%lld  loss %.4f", static_cast<long long>(done),
                                  static_cast<long long>(steps_), last_.loss) +
                           (validation_loss ? format("  val %.4f", *validation_loss) : "");
  const std::string tail = "  ETA " + clock_time(left);
  std::vector<std::string> optional = {format("  %.0f tok/s", tokens_per_second()),
                                       format("  norm %.2f", last_.grad_norm),
                                       format("  lr %.2e", last_.learning_rate)};
  while (true) {
    std::string text = head;
    for (auto field = optional.rbegin(); field != optional.rend(); ++field) text += *field;
    text += tail;
    if (text.size() <= width || optional.empty()) return text.substr(0, width);
    optional.pop_back();
  }
}

}  // namespace stagegpt
