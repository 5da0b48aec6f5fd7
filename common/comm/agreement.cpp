#include "common/comm/agreement.h"

#include <algorithm>

namespace stagegpt {
namespace {

// The outcome on a rank, in a type that all_gather() can send.
enum class Outcome : std::uint8_t { done, failed, user_error, stopped };

struct Failure {
  Outcome outcome = Outcome::done;
  std::string message;
};

Failure outcome_of(const std::function<void()>& body) {
  try {
    body();
    return {};
  } catch (const UserError& error) {
    return {Outcome::user_error, error.what()};
  } catch (const Stopped&) {
    return {Outcome::stopped, ""};
  } catch (const std::bad_alloc&) {
    return {Outcome::failed, "out of memory"};
  } catch (const std::exception& error) {
    return {Outcome::failed, error.what()};
  }
}

bool is_failure(Outcome outcome) { return outcome == Outcome::failed || outcome == Outcome::user_error; }

[[noreturn]] void throw_agreed(Outcome outcome, const std::string& message) {
  if (outcome == Outcome::user_error) throw AgreedUserError(message);
  throw AgreedFailure(message);
}

}  // namespace

bool is_agreed(const std::exception& error) {
  return dynamic_cast<const AgreedUserError*>(&error) != nullptr ||
         dynamic_cast<const AgreedFailure*>(&error) != nullptr ||
         dynamic_cast<const AgreedStop*>(&error) != nullptr;
}

bool any(RankGroup& group, bool own) {
  return std::ranges::any_of(gather<char>(group, own ? 1 : 0), [](char flag) { return flag != 0; });
}

void stop_if_requested(RankGroup& group) {
  if (any(group, StopSignals::requested())) throw AgreedStop();
}

std::string broadcast_text(RankGroup& group, std::string text, int root) {
  return broadcast_values(group, std::move(text), root);
}

void agree(RankGroup& group, const std::function<void()>& body) {
  if (group.size() == 1) return body();
  const Failure own = outcome_of(body);
  const std::vector<Outcome> outcomes = gather(group, own.outcome);
  const auto first = std::ranges::find_if(outcomes, is_failure);
  if (first == outcomes.end()) {
    if (std::ranges::find(outcomes, Outcome::stopped) != outcomes.end()) throw AgreedStop();
    return;
  }
  const int rank = static_cast<int>(first - outcomes.begin());
  const std::string message = broadcast_text(group, own.message, rank);
  const bool all_alike = !any(group, own.message != message);
  throw_agreed(*first, all_alike ? message : concat("rank ", rank, ": ", message));
}

void on_root(RankGroup& group, const std::function<void()>& body) {
  if (group.size() == 1) return body();
  Failure failure;
  group.while_root_works([&] { failure = outcome_of(body); });
  failure.outcome = from_root(group, failure.outcome);
  if (failure.outcome == Outcome::stopped) throw AgreedStop();
  if (failure.outcome != Outcome::done) {
    throw_agreed(failure.outcome, broadcast_text(group, failure.message));
  }
}

std::string text_from_root(RankGroup& group, const std::function<std::string()>& body) {
  std::string text;
  on_root(group, [&] { text = body(); });
  return broadcast_text(group, text);
}

void require_same(RankGroup& group, const NamedValues& values) {
  if (group.size() == 1) return;
  for (const auto& [name, value] : values) {
    const std::string roots = broadcast_text(group, value);
    const std::vector<char> differs = gather<char>(group, value != roots ? 1 : 0);
    const auto other = std::ranges::find(differs, 1);
    if (other == differs.end()) continue;
    const int rank = static_cast<int>(other - differs.begin());
    throw AgreedUserError(concat(name, ": ", broadcast_text(group, value, rank), " on rank ", rank, ", ",
                                 roots, " on rank 0; expected the same on all ranks"));
  }
}

}  // namespace stagegpt
