#include "tests/flags/traced_run.h"

#include <cmath>
#include <numbers>
#include <sstream>

#include "common/base/json.h"
#include "common/logging/step_trace.h"
#include "tools/compare/divergence.h"

namespace stagegpt::test {

TracedRun::TracedRun() {
  for (int i = 0; i < 4000; ++i) text_ += static_cast<char>('a' + random_word({11, 0, 0}, i) % 20);
  directory_.write("text.txt", text_);
}

void TracedRun::train(const Arguments& arguments, const RunOptions& options) {
  const Arguments fixed = words("--data text.txt --tokenizer char --run-dir run --threads 1");
  result_ = run_program("stage0_train", with_flags(fixed, arguments), directory_.path(), options);
  ASSERT_EQ(result_.exit_code, 0) << result_.errors;
  for (const auto& [step, path] : traces_in(in("traces"))) {
    const TraceFile file(path);
    std::map<std::string, Traced>& tensors = steps_.emplace_back();
    for (const std::string& name : file.names()) {
      const std::vector<float> values = file.values(name);
      tensors[name] = {file.shape(name), {values.begin(), values.end()}};
    }
  }
}

std::vector<nlohmann::json> TracedRun::metrics() const {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_bytes(in("metrics.jsonl")));
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<std::string> TracedRun::names(int step) const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : steps_.at(step - 1)) names.push_back(name);
  return names;
}

double norm_of_gradients(const TracedRun& run, int step) {
  double sum = 0;
  for (const std::string& name : run.names(step)) {
    if (!name.starts_with("the gradient of ")) continue;
    for (const double g : run.values(step, name)) sum += g * g;
  }
  return std::sqrt(sum);
}

double OptimizerFlags::rate(int step) const {
  if (step < warmup_steps) return learning_rate * (step + 1) / warmup_steps;
  if (lr_schedule == "wsd") {
    const double left = static_cast<double>(steps - step) / decay_steps;
    return min_lr + std::min(1.0, left) * (learning_rate - min_lr);
  }
  const double progress = static_cast<double>(step - warmup_steps) / (steps - warmup_steps);
  if (lr_schedule == "linear") return learning_rate + progress * (min_lr - learning_rate);
  if (lr_schedule == "cosine")
    return min_lr + (learning_rate - min_lr) * (1 + std::cos(std::numbers::pi * progress)) / 2;
  return learning_rate;
}

namespace {

// The state of one parameter in AdamW.
struct Course {
  Values weights, m, v;
  bool decays = false;
};

// Updates the moments of element i with its gradient g at step t (from 1), and returns the change of the
// weight.
double change(Course& course, std::size_t i, double g, int t, const OptimizerFlags& flags) {
  double &m = course.m[i], &v = course.v[i];
  m = flags.beta1 * m + (1 - flags.beta1) * g;
  v = flags.beta2 * v + (1 - flags.beta2) * g * g;
  const double m_hat = m / (1 - std::pow(flags.beta1, t)), v_hat = v / (1 - std::pow(flags.beta2, t));
  const double decay = course.decays ? flags.weight_decay * course.weights[i] : 0;
  return -flags.rate(t - 1) * (m_hat / (std::sqrt(v_hat) + flags.eps) + decay);
}

}  // namespace

double adamw_error(const TracedRun& run, const OptimizerFlags& flags,
                   const std::map<std::string, Values>& initial) {
  std::map<std::string, Course> courses;
  for (const auto& [name, weights] : initial) {
    courses[name] = {weights, Values(weights.size()), Values(weights.size()),
                     run.shape(1, "the weight " + name).size() == 2};
  }
  double worst = 0;
  for (int t = 1; t <= run.steps(); ++t) {
    const double norm = norm_of_gradients(run, t);
    const double scale = flags.grad_clip > 0 ? std::min(1.0, flags.grad_clip / (norm + 1e-6)) : 1;
    double difference = 0, changed = 0;
    for (auto& [name, course] : courses) {
      const Values &after = run.values(t, "the weight " + name),
                   &gradient = run.values(t, "the gradient of " + name);
      for (std::size_t i = 0; i < after.size(); ++i) {
        const double expected = change(course, i, scale * gradient[i], t, flags);
        const double error = after[i] - course.weights[i] - expected;
        difference += error * error;
        changed += expected * expected;
      }
      course.weights = after;
    }
    worst = std::max(worst, std::sqrt(difference / changed));
  }
  return worst;
}

}  // namespace stagegpt::test
