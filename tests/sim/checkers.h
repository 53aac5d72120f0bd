// The rules, checked apart from the engine: from the order of events in the journal, and from what
// really runs. Every check cites the numbered invariant that it stands for.
#pragma once

#include <map>
#include <set>
#include <string>

#include "tests/driver/controller.h"

namespace regrow::sim {

// What the durable part of the journal says, indexed for checks. Knows nothing of the engine's
// states.
struct DurableIndex {
  std::set<IncarnationKey> spawning, stopping, exited, lost, doomed;
  std::set<IncarnationKey> left_something;  // exited, and not known to be gone at first
  std::map<std::pair<JobId, RankIndex>, Incarnation> newest;
  std::map<JobId, uint32_t> prepare_attempt;
  std::map<JobId, Generation> planned, formed;  // newest
  std::set<JobId> accepted;
  std::set<std::string> operators_done;  // `by.who` of every operator's event
  uint64_t epoch = 0;
  void add(const EventRecord& r);
};

// Rules about the order of decisions, durable or not. Rebuilt when a crash takes the tail away.
class HistoryCheck {
 public:
  void add(const EventRecord& r);
  // Charged incidents per job and class, since the last refill.
  std::map<std::pair<JobId, FailureClass>, uint32_t> budget() const;

 private:
  struct Job {
    Desired desired = Desired::run;
    bool cancelled = false;
    bool ended = false;
    Generation generation;
    std::map<RankIndex, Incarnation> newest;
    std::set<std::pair<RankIndex, Incarnation>> blamed;
    std::vector<RankIndex> to_start;                       // of the newest plan
    std::map<RankIndex, Incarnation> of_slot;              // newest that the job has ordered
    std::set<std::pair<RankIndex, Incarnation>> may_stop;  // some plan named them
    std::vector<std::pair<FailureClass, bool>> incidents;  // class, charged
    size_t counts_from = 0;
    uint32_t incident_count = 0;
  };
  std::map<JobId, Job> jobs_;
  std::map<HostName, bool> usable_;
  std::map<std::pair<HostName, DeviceName>, bool> device_usable_;
  std::map<std::pair<HostName, DeviceName>, std::pair<JobId, RankIndex>> leases_;
};

// J-1, J-2: folding the journal gives the state of each live entity.
void check_fold(const SimController& controller);
// The fold of the first `upto` records, entity by entity.
std::map<EntityId, AnyState> fold(const SimJournal& journal, uint64_t upto);

}  // namespace regrow::sim
