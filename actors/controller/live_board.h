// Figures that are not journaled: where each rank is now. Written as agents report, read by views.
// Any thread.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "supervisors/host_protocol.h"

namespace regrow {

class LiveBoard {
 public:
  void update(const ProgressReport& report) {
    std::lock_guard lock(mutex_);
    ranks_[{report.key.job, report.key.rank}] = report;
  }
  // The newest report of a rank, if it is of this incarnation.
  std::optional<ProgressReport> find(const IncarnationKey& key) const {
    std::lock_guard lock(mutex_);
    auto it = ranks_.find({key.job, key.rank});
    if (it == ranks_.end() || it->second.key.incarnation != key.incarnation) return std::nullopt;
    return it->second;
  }
  void forget(JobId job) {
    std::lock_guard lock(mutex_);
    std::erase_if(ranks_, [&](const auto& entry) { return entry.first.first == job; });
  }
  void set_session(const HostName& host, SessionId session) {
    std::lock_guard lock(mutex_);
    if (session.value == 0) {
      sessions_.erase(host);
    } else {
      sessions_[host] = session;
    }
  }
  SessionId session(const HostName& host) const {
    std::lock_guard lock(mutex_);
    auto it = sessions_.find(host);
    return it == sessions_.end() ? SessionId{} : it->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<JobId, RankIndex>, ProgressReport> ranks_;
  std::map<HostName, SessionId> sessions_;
};

}  // namespace regrow
