#include "common/train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

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

void Progress::step(const StepReport& report) {
  last_ = report;
  training_seconds_ += report.seconds.total();
  constexpr std::int64_t kPlainLines = 40;
  const std::int64_t done = report.step + 1, interval = std::max<std::int64_t>(1, steps_ / kPlainLines);
  print(done == 1 || done == steps_ || done % interval == 0);
}

void Progress::validation(double loss) {
  validation_loss_ = loss;
  print(true);
}

double Progress::tokens_per_second() const {
  return static_cast<double>((last_.step + 1) * tokens_per_step_) / training_seconds_;
}

std::string Progress::line() const {
  const std::int64_t done = last_.step + 1;
  const double elapsed = seconds_since(start_);
  std::string text = format("step %lld/%lld  loss %.4f", static_cast<long long>(done),
                            static_cast<long long>(steps_), last_.loss);
  text += validation_loss_ ? format("  val %.4f", *validation_loss_) : "";
  text +=
      format("  lr %.2e  norm %.2f  %.0f tok/s", last_.learning_rate, last_.grad_norm, tokens_per_second());
  return text + "  ETA " +
         clock_time(elapsed / static_cast<double>(done) * static_cast<double>(steps_ - done));
}

void Progress::print(bool plain_line) {
  if (terminal_) {
    // Cut to the window, since a line that wraps cannot be rewritten.
    std::fprintf(stderr, "\r\x1b[K%s", line().substr(0, terminal_width() - 1).c_str());
    line_open_ = true;
  } else if (plain_line) {
    std::fprintf(stderr, "%s\n", line().c_str());
  }
  std::fflush(stderr);
}

}  // namespace stagegpt
