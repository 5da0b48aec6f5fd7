#include "tools/compare/divergence.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <string_view>

#include "common/base/error.h"
#include "common/logging/step_trace.h"
#include "common/measure/relative_error.h"
#include "common/train/non_finite.h"
#include "tools/compare/trace_noise.h"

namespace stagegpt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGradient = "the gradient of ", kWeight = "the weight ", kLoss = "the loss";

enum class Kind : std::uint8_t { output, loss, gradient, weight };

Kind kind_of(const std::string& tensor) {
  if (tensor.starts_with(kGradient)) return Kind::gradient;
  if (tensor.starts_with(kWeight)) return Kind::weight;
  return tensor == kLoss ? Kind::loss : Kind::output;
}

// The norm of all gradients.
double gradient_norm(const TraceFile& trace) {
  double squared = 0;
  for (const std::string& name : trace.names()) {
    if (kind_of(name) == Kind::gradient) squared += std::pow(norm(trace.values(name)), 2);
  }
  return std::sqrt(squared);
}

// The relative error, but more than 0 if the bits differ, as those of 0 and -0 do.
double error_of_bits(const std::vector<float>& actual, const std::vector<float>& expected) {
  if (std::memcmp(actual.data(), expected.data(), expected.size() * sizeof(float)) == 0) return 0;
  return std::max(relative_error(actual, expected), std::numeric_limits<double>::min());
}

// Compares two runs step by step.
class Comparison {
 public:
  explicit Comparison(const TraceLimits& limits) : limits_(limits) {}

  std::vector<Divergence> step(std::int64_t step, const TraceFile& reference, const TraceFile& other) {
    std::vector<Divergence> all;
    gradient_norm_ = gradient_norm(reference);
    for (const std::string& name : reference.names()) {
      all.push_back(other.has(name) ? compare(name, reference, other)
                                    : Divergence{.tensor = name, .missing_in = other.path()});
    }
    for (const std::string& name : other.names()) {
      if (!reference.has(name)) all.push_back({.tensor = name, .missing_in = reference.path()});
    }
    for (Divergence& divergence : all) divergence.step = step;
    noise_.next_step();
    return all;
  }

 private:
  Divergence compare(const std::string& name, const TraceFile& reference, const TraceFile& other) {
    const std::int64_t rows = common_rows(name, reference, other);
    std::vector<float> expected = reference.values(name, rows), actual = other.values(name, rows);
    if (limits_.are_zero()) return {.tensor = name, .error = error_of_bits(actual, expected)};
    remove_softmax_invariant(name, reference.shape(name), expected);
    remove_softmax_invariant(name, reference.shape(name), actual);
    switch (kind_of(name)) {
      case Kind::output:
        return within(limits_.computed.logits, {.tensor = name, .error = relative_error(actual, expected)});
      case Kind::loss: {
        constexpr double kLogit = 1;  // the loss is a difference of numbers of at least this size
        return within(limits_.computed.loss,
                      {.tensor = name, .error = relative_error(actual, expected, kLogit)});
      }
      case Kind::gradient: {
        // Rounding errors depend on the size of all gradients. A tensor that is tiny in comparison, for
        // example because its true gradient is zero, contains little but rounding errors.
        constexpr double kSmallest = 1e-3;
        noise_.add_gradients(name.substr(kGradient.size()), actual, expected);
        return within(
            limits_.computed.gradient,
            {.tensor = name, .error = relative_error(actual, expected, kSmallest * gradient_norm_)});
      }
      case Kind::weight:
        break;
    }
    const std::string parameter = name.substr(kWeight.size());
    noise_.add_weights(actual, expected, reference.shape(name).size() == 1);
    noise_.remove_noise(parameter, expected);
    noise_.remove_noise(parameter, actual);
    return within(limits_.weight, {.tensor = name, .error = relative_error(actual, expected)});
  }

  Divergence within(double limit, Divergence divergence) const {
    divergence.limit = limit + noise_.allowance();
    return divergence;
  }

  // A trace holds the first sequences of the batch, whose number depends on the number of ranks.
  static std::int64_t common_rows(const std::string& name, const TraceFile& reference,
                                  const TraceFile& other) {
    const std::vector<std::int64_t>&expected = reference.shape(name), &shape = other.shape(name);
    const bool same_rows =
        std::ranges::equal(expected.begin() + 1, expected.end(), shape.begin() + 1, shape.end());
    if (!same_rows || (kind_of(name) != Kind::output && expected[0] != shape[0])) {
      user_error(other.path(), ": '", name, "' has another shape than in ", reference.path());
    }
    return std::min(expected[0], shape[0]);
  }

  const TraceLimits& limits_;
  AdamNoise noise_;
  double gradient_norm_ = 0;
};

}  // namespace

TraceFile::TraceFile(const std::filesystem::path& path) : path_(path), file_(path, "trace") {
  naming(path, [&] {
    for (const auto& [name, tensor] : parse_safetensors(file_.bytes())) add(name, tensor);
  });
}

void TraceFile::add(const std::string& numbered, const SafetensorsView& tensor) {
  constexpr std::size_t kDigits = 5;
  const bool is_numbered =
      numbered.size() > kDigits + 1 && numbered[kDigits] == ' ' &&
      std::all_of(numbered.begin(), numbered.begin() + kDigits, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_numbered) user_error("not a trace: unexpected tensor name '", numbered.substr(0, 80), "'");
  const std::string name = numbered.substr(kDigits + 1);
  if (tensor.dtype != "F32" || tensor.shape.empty()) {
    user_error("not a trace: '", name.substr(0, 80), "': expected F32 of 1 or more dimensions, got ",
               tensor.dtype, " of ", tensor.shape.size());
  }
  if (!tensors_.emplace(name, tensor).second) {
    user_error("not a trace: '", name.substr(0, 80), "' occurs twice");
  }
  names_.push_back(name);
}

std::vector<float> TraceFile::values(const std::string& name, std::int64_t rows) const {
  const SafetensorsView& tensor = tensors_.at(name);
  const std::int64_t row =
      std::accumulate(tensor.shape.begin() + 1, tensor.shape.end(), std::int64_t{1}, std::multiplies<>());
  std::vector<float> values(static_cast<std::size_t>((rows < 0 ? tensor.shape[0] : rows) * row));
  to_floats(tensor, 0, values);
  return values;
}

bool TraceLimits::are_zero() const {
  return computed.logits == 0 && computed.loss == 0 && computed.gradient == 0 && weight == 0;
}

std::string Divergence::text() const {
  if (missing_in) return concat("step ", step, ": ", tensor, " is missing in ", *missing_in);
  char numbers[64];
  std::snprintf(numbers, sizeof numbers, " differs by %.1e, more than %.1e", unsigned_nan(error), limit);
  return concat("step ", step, ": ", tensor, numbers);
}

std::vector<Divergence> divergences(const fs::path& reference, const fs::path& other,
                                    const TraceLimits& limits) {
  std::vector<Divergence> all;
  Comparison comparison(limits);
  const auto others = traces_in(other);
  for (const auto& [step, path] : traces_in(reference)) {
    const auto same_step = others.find(step);
    if (same_step == others.end()) continue;
    const TraceFile a(path), b(same_step->second);
    std::ranges::move(comparison.step(step, a, b), std::back_inserter(all));
  }
  if (all.empty()) user_error("traces: no common step in ", reference, " and ", other);
  return all;
}

std::optional<Divergence> first_divergence(const fs::path& reference, const fs::path& other,
                                           const TraceLimits& limits) {
  const std::vector<Divergence> all = divergences(reference, other, limits);
  const auto first = std::ranges::find_if_not(all, &Divergence::within_limit);
  return first == all.end() ? std::nullopt : std::optional(*first);
}

}  // namespace stagegpt
