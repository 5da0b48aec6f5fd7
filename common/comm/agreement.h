// Agreement between ranks: on values, on texts, and on whether an operation has failed. An error on one rank
// is thrown on all ranks with the same message, so no rank waits for a rank that has failed.
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

// Errors that every rank throws at the same point. The program can end normally, and only rank 0 prints the
// message.
class AgreedUserError final : public UserError {
 public:
  using UserError::UserError;
};
class AgreedFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// Not an error: at least one rank has received a stop signal.
class AgreedStop final : public Stopped {};
bool is_agreed(const std::exception& error);

// All-gathers one value per rank. The result is in order of rank.
template <class T>
std::vector<T> gather(RankGroup& group, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)));
  return all;
}
// All-gathers the same number of values from each rank: those of rank 0, of rank 1, ….
template <class T>
std::vector<T> gather(RankGroup& group, const std::vector<T>& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(own.size() * static_cast<std::size_t>(group.size()));
  group.all_gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  return all;
}

// Broadcasts the value of rank 0.
template <class T>
T from_root(RankGroup& group, T own) {
  static_assert(std::is_trivially_copyable_v<T>);
  group.broadcast(std::as_writable_bytes(std::span(&own, 1)), 0);
  return own;
}

// Whether `own` is true on any rank.
bool any(RankGroup& group, bool own);

// Broadcasts the vector or the text of `root`, whose size the other ranks need not know.
template <class Values>
Values broadcast_values(RankGroup& group, Values values, int root) {
  if (group.size() == 1) return values;
  std::size_t size = values.size();
  group.broadcast(std::as_writable_bytes(std::span(&size, 1)), root);
  values.resize(size);
  group.broadcast(std::as_writable_bytes(std::span(values)), root);
  return values;
}

// Broadcasts the text of `root`.
std::string broadcast_text(RankGroup& group, std::string text, int root = 0);

// Throws AgreedStop on every rank if any rank has received a stop signal.
void stop_if_requested(RankGroup& group);

// Runs `body` on every rank. If it throws on any rank, every rank throws the error of the lowest such rank.
// The message names that rank, unless all ranks have failed with the same message. Throws AgreedStop if no
// rank has failed and one was stopped.
void agree(RankGroup& group, const std::function<void()>& body);

// Runs `body` on rank 0 while the others wait. An error in it is thrown on all ranks. A body that may take
// long must call group.beat() repeatedly; otherwise the watchdog treats rank 0 as hung.
void on_root(RankGroup& group, const std::function<void()>& body);
// Runs the body on rank 0, and returns its text on every rank.
std::string text_from_root(RankGroup& group, const std::function<std::string()>& body);

// Values that must be the same on all ranks: a name, and the value as text.
using NamedValues = std::vector<std::pair<std::string, std::string>>;
// Throws AgreedUserError, which names the value and the rank, if a value differs from rank 0's.
void require_same(RankGroup& group, const NamedValues& values);

}  // namespace stagegpt
