#include "common/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace stagegpt {
namespace {

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : 80;
}

template <class... Values>
std::string format(const char* pattern, Values... values) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, pattern, values...);
  return buffer;
}

// "1:05" or "2:03:04".
std::string clock_time(double seconds) {
  const auto total = static_cast<long long>(seconds + 0.5);
  const long long hours = total / 3600, minutes = total / 60 % 60;
  return hours > 0 ? format("%lld:%02lld:%02lld", hours, minutes, total % 60)
                   : format("%lld:%02lld", minutes, total % 60);
}

}  // namespace

Progress::Progress(std::int64_t steps, std::int64_t tokens_per_step)
    : steps_(steps), tokens_per_step_(tokens_per_step), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (line_open_) std::fputc('\n', stderr);
}

void Progress::step(const StepReport& report, std::optional<double> validation_loss) {
  constexpr std::int64_t kPlainLines = 40;
  last_ = report;
  training_seconds_ += report.seconds.total();
  if (validation_loss) validation_loss_ = validation_loss;
  const std::int64_t done = report.step + 1, interval = std::max<std::int64_t>(1, steps_ / kPlainLines);
  if (terminal_) {
    // Never as wide as the window, since a line that wraps cannot be rewritten.
    std::fprintf(stderr, "\r\x1b[K%s", line(validation_loss_, terminal_width() - 1).c_str());
    line_open_ = true;
  } else if (validation_loss || done == 1 || done % interval == 0) {
    std::fprintf(stderr, "%s\n", line(validation_loss, std::string::npos).c_str());
  }
  std::fflush(stderr);
}

double Progress::tokens_per_second() const {
  return static_cast<double>((last_.step + 1) * tokens_per_step_) / training_seconds_;
}

std::string Progress::line(std::optional<double> validation_loss, std::size_t width) const {
  const std::int64_t done = last_.step + 1;
  const double left = seconds_since(start_) / static_cast<double>(done) * static_cast<double>(steps_ - done);
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
