#include "transport/report_queue.h"

#include <algorithm>

namespace regrow {

namespace {

// A rank report carries up to 8 KiB of last words: a batch stays around 4 MiB.
constexpr size_t kBatchReports = 500;

size_t count(const HostReports& r) {
  return r.ranks.size() + r.prepares.size() + r.devices.size() + r.joins.size();
}

template <class T>
void append(std::vector<T>& to, std::vector<T>& from) {
  to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

// Takes the newest from `from`; the older one of the same thing goes.
template <class T, class Same>
void replace(std::vector<T>& to, std::vector<T>& from, Same same) {
  for (auto& report : from) {
    auto old =
        std::find_if(to.begin(), to.end(), [&](const T& other) { return same(other, report); });
    if (old != to.end())
      *old = std::move(report);
    else
      to.push_back(std::move(report));
  }
}

template <class T>
void move_front(std::vector<T>& from, std::vector<T>& to, size_t& room) {
  size_t n = std::min(room, from.size());
  to.assign(std::make_move_iterator(from.begin()), std::make_move_iterator(from.begin() + n));
  from.erase(from.begin(), from.begin() + n);
  room -= n;
}

}  // namespace

void ReportQueue::add(HostReports reports, bool connected) {
  if (!connected) return merge(std::move(reports));
  append(unsent_.ranks, reports.ranks);
  append(unsent_.prepares, reports.prepares);
  append(unsent_.devices, reports.devices);
  append(unsent_.joins, reports.joins);
}

void ReportQueue::merge(HostReports reports) {
  replace(unsent_.ranks, reports.ranks,
          [](const RankReport& a, const RankReport& b) { return a.key == b.key; });
  replace(unsent_.prepares, reports.prepares, [](const PrepareReport& a, const PrepareReport& b) {
    return a.job == b.job && a.generation == b.generation && a.attempt == b.attempt;
  });
  replace(unsent_.devices, reports.devices,
          [](const DeviceReport& a, const DeviceReport& b) { return a.name == b.name; });
  replace(unsent_.joins, reports.joins,
          [](const JoinReport& a, const JoinReport& b) { return a.key == b.key; });
}

ReportQueue::Batch ReportQueue::take_batch() {
  uint64_t id = ++last_batch_;
  HostReports& batch = under_way_[id];
  if (count(unsent_) <= kBatchReports) {
    batch = std::move(unsent_);
    unsent_ = {};
  } else {
    size_t room = kBatchReports;
    move_front(unsent_.ranks, batch.ranks, room);
    move_front(unsent_.prepares, batch.prepares, room);
    move_front(unsent_.devices, batch.devices, room);
    move_front(unsent_.joins, batch.joins, room);
  }
  return {id, &batch};
}

void ReportQueue::acknowledged(uint64_t batch) { under_way_.erase(batch); }

void ReportQueue::connection_lost() {
  HostReports later = std::move(unsent_);
  unsent_ = {};
  for (auto& [id, batch] : under_way_) merge(std::move(batch));
  under_way_.clear();
  merge(std::move(later));
}

size_t ReportQueue::unacknowledged() const {
  size_t total = count(unsent_);
  for (const auto& [id, batch] : under_way_) total += count(batch);
  return total;
}

}  // namespace regrow
