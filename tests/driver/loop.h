// Virtual time: what happens next, in order of time and then of asking.
//
//   Loop loop(Time{0});
//   loop.after(Duration::ms(5), [&] { ... });
//   while (loop.step()) {}
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "supervisors/types.h"

namespace regrow::sim {

class Loop {
 public:
  explicit Loop(Time start) : now_(start) {}
  Loop(const Loop&) = delete;

  Time now() const { return now_; }
  void at(Time time, std::function<void()> run) {
    heap_.push_back({std::max(time, now_), order_++, std::move(run)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  void after(Duration d, std::function<void()> run) { at(now_ + d, std::move(run)); }

  // Runs what is next; false if nothing is.
  bool step() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), later);
    Item item = std::move(heap_.back());
    heap_.pop_back();
    now_ = item.at;
    item.run();
    return true;
  }
  // Runs all that is due up to `end`, then it is `end`.
  void run_until(Time end) {
    while (!heap_.empty() && heap_.front().at <= end) step();
    now_ = std::max(now_, end);
  }
  void run_for(Duration d) { run_until(now_ + d); }

 private:
  struct Item {
    Time at;
    uint64_t order;
    std::function<void()> run;
  };
  static bool later(const Item& a, const Item& b) {
    return std::tie(a.at, a.order) > std::tie(b.at, b.order);
  }

  Time now_;
  uint64_t order_ = 0;
  std::vector<Item> heap_;
};

}  // namespace regrow::sim
