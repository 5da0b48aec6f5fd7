// Work on several threads, with the results in order.
#pragma once

#include <deque>
#include <future>
#include <optional>
#include <utility>

namespace stagegpt {

// Calls consume(work(value)) for each value that produce() returns, until it returns nullopt. work() runs on
// up to `threads` threads. produce() and consume() run on the caller's thread, in order, so the result does
// not depend on the number of threads. At most `threads` values are held at a time. An exception in any of
// the three ends the loop and is rethrown.
template <class Produce, class Work, class Consume>
void for_each_in_order(int threads, Produce&& produce, Work&& work, Consume&& consume) {
  using Value = typename decltype(produce())::value_type;
  std::deque<std::future<decltype(work(std::declval<Value>()))>> running;
  while (true) {
    std::optional<Value> value;
    while (static_cast<int>(running.size()) < threads && (value = produce())) {
      running.push_back(std::async(std::launch::async, work, std::move(*value)));
    }
    if (running.empty()) return;
    auto result = running.front().get();
    running.pop_front();
    consume(std::move(result));
  }
}

}  // namespace stagegpt
