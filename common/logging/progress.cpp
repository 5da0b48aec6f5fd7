#include "common/logging/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "common/base/grouped.h"
#include "common/base/seconds_since.h"

namespace stagegpt {
namespace {

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

std::string bar(const ProgressState& state, std::size_t width) {
  const auto size = static_cast<std::int64_t>(std::clamp<std::size_t>(width / 5, 3, 30));
  const auto filled = static_cast<std::size_t>(state.done * size / std::max<std::int64_t>(1, state.steps));
  std::string text(static_cast<std::size_t>(size), ' ');
  std::fill_n(text.begin(), filled, '=');
  if (filled < text.size()) text[filled] = '>';
  return "[" + text + "]  ";
}

// In order from left to right. If there is no room for all, the field with the highest rank is dropped first.
struct Field {
  int rank;
  std::string text;
};

std::vector<Field> fields(const ProgressState& s) {
  std::vector<Field> list = {
      {1, format("step %lld/%lld", static_cast<long long>(s.done), static_cast<long long>(s.steps))},
      {0, format("loss %.4f", s.loss)}};
  if (s.validation_loss) list.push_back({2, format("val %.4f", *s.validation_loss)});
  list.push_back({5, format("lr %.2e", s.learning_rate)});
  list.push_back({4, format("norm %.2f", s.grad_norm)});
  list.push_back({3, grouped(s.tokens_per_second) + " tok/s"});
  list.push_back({-1, "ETA " + clock_time(s.seconds_left)});
  return list;
}

std::string joined(const std::vector<Field>& list) {
  std::string text;
  for (const Field& field : list) text += (text.empty() ? "" : "  ") + field.text;
  return text;
}

}  // namespace

std::string progress_line(const ProgressState& state, std::size_t width) {
  const std::string head = width == std::string::npos ? "" : bar(state, width);
  std::vector<Field> list = fields(state);
  while (list.size() > 1 && head.size() + joined(list).size() > width) {
    list.erase(std::ranges::max_element(list, {}, &Field::rank));
  }
  return (head + joined(list)).substr(0, width);
}

std::string validation_line(std::int64_t done, std::int64_t total, double seconds) {
  const double left = seconds * static_cast<double>(total - done) / static_cast<double>(done);
  return "validation  " + grouped(done) + '/' + grouped(total) + " tokens  ETA " + clock_time(left);
}

Progress::Progress(std::int64_t first, std::int64_t steps, std::int64_t tokens_per_step)
    : first_(first), steps_(steps), tokens_per_step_(tokens_per_step) {}

void Progress::step(const StepReport& report, std::optional<double> validation_loss, double share_done,
                    double validation_seconds) {
  constexpr std::int64_t kPlainLines = 40;
  constexpr double kInterval = 0.1;  // seconds
  if (training_seconds_ == 0) {
    const std::chrono::duration<double> taken(report.seconds.total() + validation_seconds);
    start_ = std::chrono::steady_clock::now() - std::chrono::duration_cast<Time::duration>(taken);
  }
  last_ = report;
  share_done_ = share_done;
  training_seconds_ += report.seconds.total();
  if (validation_loss) validation_loss_ = validation_loss;
  const std::int64_t done = report.step + 1, interval = std::max<std::int64_t>(1, steps_ / kPlainLines);
  const bool plain = validation_loss || done == first_ + 1 || done == steps_ || done % interval == 0;
  is_shown_ = plain || seconds_since(shown_) >= kInterval;
  if (!is_shown_) return;
  shown_ = std::chrono::steady_clock::now();
  status_.show(plain, [&](std::size_t width) {
    return progress_line(state(status_.is_terminal() ? validation_loss_ : validation_loss), width);
  });
}

void Progress::note(const std::string& text) {
  if (!std::exchange(is_shown_, true))
    status_.show(false, [&](std::size_t width) { return progress_line(state(validation_loss_), width); });
  status_.print_above(text);
}

void Progress::validation(std::int64_t done, std::int64_t total) {
  constexpr double kSilent = 1, kInterval = 0.1, kPlainInterval = 10;  // seconds
  if (done == 0) validation_start_ = std::chrono::steady_clock::now();
  const double seconds = seconds_since(validation_start_);
  const double interval = status_.is_terminal() ? kInterval : kPlainInterval;
  if (done == 0 || seconds < kSilent || seconds_since(shown_) < interval) return;
  shown_ = std::chrono::steady_clock::now();
  status_.show(true,
               [&](std::size_t width) { return validation_line(done, total, seconds).substr(0, width); });
}

double Progress::tokens_per_second() const {
  if (training_seconds_ == 0) return 0;
  return static_cast<double>((last_.step + 1 - first_) * tokens_per_step_) / training_seconds_;
}

ProgressState Progress::state(std::optional<double> validation_loss) const {
  const std::int64_t done = last_.step + 1;
  return {.done = done,
          .steps = steps_,
          .loss = last_.loss,
          .validation_loss = validation_loss,
          .learning_rate = last_.learning_rate,
          .grad_norm = last_.grad_norm,
          .tokens_per_second = tokens_per_second(),
          .seconds_left = seconds_since(start_) * (1 - share_done_) / share_done_};
}

}  // namespace stagegpt
