// The stores in which jobs of `rendezvous: store` meet: one process per job, on the host of its
// rank 0.
//
// A store is torch.distributed's own TCPStore, run by the job's own Python, so that the protocol on
// the wire is that of the framework. It is up before the ranks and stays up over restarts of them;
// its death costs nothing until ranks meet again, and then there is another. Like a rank it lives
// under a shim, survives the agent (F-2) and is found again by the next one. It ends when its job
// has had no rank on this host for kStoreLinger. Owned by the agent's session; everything on the
// event loop's thread.
//
//   RendezvousStores stores(io.unixEventPort, timer, runner_options);
//   stores.ensure(command).then([](StoreAnswer a) { a.port or a.trouble });
//   stores.keep(runner.inventory());   // now and then
#pragma once

#include <map>
#include <string>
#include <vector>

#include "actors/agent/rank_runner.h"

namespace regrow {

inline constexpr Duration kStoreLinger = Duration::seconds(20);

struct StoreAnswer {
  uint32_t port = 0;    // 0 = there is none
  std::string trouble;  // why there is none
};

class RendezvousStores : private kj::TaskSet::ErrorHandler {
 public:
  // `base` as for the ranks' own runner; the stores get directories of their own below its.
  RendezvousStores(kj::UnixEventPort& port, kj::Timer& timer, RankRunnerOptions base);

  // The port of the job's store once it listens. Bounded in time; a store that comes later serves
  // the next generation.
  kj::Promise<StoreAnswer> ensure(const PrepareCommand& command);

  // Ends the stores of jobs that none of these ranks has belonged to for the linger time.
  void keep(const std::vector<RankReport>& ranks, Duration linger = kStoreLinger);

  void stop_all();
  size_t alive() const;
  bool idle() const { return runner_.idle(); }
  // 0 = the job has none that runs.
  uint64_t pid(JobId job) const;

 private:
  struct Store {
    IncarnationKey key;
    PrepareCommand command;  // job 0 = found after a restart of the agent: not known
    int64_t started_us = 0;
    int64_t used_us = 0;
    std::string trouble;  // how the newest one ended
  };

  void taskFailed(kj::Exception&& exception) override;
  void start(Store& store);
  void on_report(const RankReport& report);
  void on_end(const RankReport& report);
  bool runs(const Store& store) const;
  uint32_t listening_on(const Store& store) const;
  kj::Promise<StoreAnswer> wait_for_port(JobId job, int64_t until_us);

  kj::Timer& timer_;
  std::map<JobId, Store> stores_;
  RankRunner runner_;
  kj::TaskSet tasks_;  // last: its tasks use the rest
};

}  // namespace regrow
