// Inside transport/: reports on their way to the controller, until it says that they are durable.
// One thread. No I/O.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>

#include "transport/host_link.h"

namespace regrow {

class ReportQueue {
 public:
  struct Batch {
    uint64_t id;
    const HostReports* reports;  // valid until acknowledged() or connection_lost()
  };

  // `connected` = keep every report; else only the newest of each incarnation, prepare and device,
  // so that a long absence fills no memory.
  void add(HostReports reports, bool connected);

  bool has_unsent() const { return !unsent_.empty(); }
  // A part of what is unsent, in order; it is under way from now on.
  Batch take_batch();
  void acknowledged(uint64_t batch);
  // Everything under way becomes unsent again, ahead of what was added later.
  void connection_lost();

  size_t under_way() const { return under_way_.size(); }
  size_t unacknowledged() const;

 private:
  void merge(HostReports reports);

  HostReports unsent_;
  std::map<uint64_t, HostReports> under_way_;
  uint64_t last_batch_ = 0;
};

}  // namespace regrow
