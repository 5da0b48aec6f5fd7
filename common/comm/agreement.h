// How ranks agree: on values, on texts, and on whether something has failed. What fails on one rank fails on
// all, with the same message, so that nobody waits for a rank that has given up.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/comm/rank_group.h"
#include "common/system/stop_signals.h"

namespace stagegpt {

// Errors that every rank throws at the same point: the program may end in order, and rank 0 speaks for all.
class AgreedUserError final : public UserError {
 public:
  using UserError::UserError;
};
class AgreedFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// No error: a signal has come to at least one of them.
class AgreedStop final : public Stopped {};
bool is_agreed(const std::exception& error);

// The value of each rank, by rank.
template <class T>
std::vector<T> gather(RankGroup& group, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}
// The values of rank 0, those of rank 1, …: of each the same number.
template <class T>
std::vector<T> gather(RankGroup& group, const std::vector<T>& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(own.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  return all;
}

// The value of rank 0, on every rank.
template <class T>
T from_root(RankGroup& group, T own) {
  static_assert(std::is_trivially_copyable_v<T>);
  group.broadcast(std::as_writable_bytes(std::span(&own, 1)), 0);
  return own;
}

// Whether it is true on any rank.
bool any(RankGroup& group, bool own);

// The root's text, on every rank.
std::string broadcast_text(RankGroup& group, std::string text, int root = 0);

// Throws AgreedStop on every rank when a stop signal has come to any.
void stop_if_requested(RankGroup& group);

// Runs `body` on every rank. Where it throws on any, every rank throws: the error of the first such rank,
// whose number it names unless all have failed alike. AgreedStop, where none has failed and one was stopped.
void agree(RankGroup& group, const std::function<void()>& body);

// Runs `body` on rank 0 while the others wait. What it throws, all throw. If it may take long, it calls
// group.beat() as it goes on: who waits would take it for hung otherwise.
//
// For each group.ask_others() of the body, the others call `help`; what that throws is not agreed on.
void on_root(RankGroup& group, const std::function<void()>& body, const RankGroup::Help& help = {});
// The same, and returns its text on every rank.
std::string text_from_root(RankGroup& group, const std::function<std::string()>& body);

// What must not differ between ranks: a name, and its value as text.
using NamedValues = std::vector<std::pair<std::string, std::string>>;
// Throws AgreedUserError, naming the value and the rank, where one differs from rank 0's.
void require_same(RankGroup& group, const NamedValues& values);

}  // namespace stagegpt
