// Rendezvous ports for the jobs on this host, from a range, one job each.
//
// Check-then-use cannot be made safe, so a port is leased: nobody else on the machine gets it from
// a regrow agent for as long as the lease lasts (an abstract socket named after the port is held
// meanwhile, so several agents on one machine agree), and a bind that fails all the same is
// answered with another port. Owned by the rank runner; its loop's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/agent/files.h"
#include "supervisors/types.h"

namespace regrow {

class PortLeases {
 public:
  // Inclusive range. `host` spreads the hosts of one machine over it.
  PortLeases(std::string host, uint32_t first, uint32_t last);

  // The job's port for this attempt; the same answer for the same question. A new generation or
  // attempt gets another port and gives the old one back. 0, with the reason in `error`, if none is
  // free.
  uint32_t lease(JobId job, Generation generation, uint32_t attempt,
                 const std::vector<uint32_t>& avoid, std::string& error);
  // The job uses this port already: an agent that takes over running ranks says so.
  void adopt(JobId job, Generation generation, uint32_t port);
  // Unless the job has been given another port since.
  void release(JobId job, uint32_t port);

 private:
  struct Lease {
    Generation generation;
    uint32_t attempt = 0;
    uint32_t port = 0;
    Fd claim;
  };
  bool held(uint32_t port) const;

  std::string host_;
  uint32_t first_;
  uint32_t last_;
  std::map<JobId, Lease> leases_;
};

}  // namespace regrow
