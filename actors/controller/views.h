// What commands, shell and page are shown: JSON made from the journal's fold and the live board.
// Any thread; each call sees one moment of the projection per entity.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "actors/controller/live_board.h"
#include "journal/journal.h"
#include "journal/projection.h"

namespace regrow {

class Views {
 public:
  Views(const Projection& projection, const LiveBoard& board, const Journal& journal)
      : projection_(projection), board_(board), journal_(journal) {}

  nlohmann::json jobs(bool all) const;
  std::optional<nlohmann::json> job(JobId id) const;
  nlohmann::json hosts() const;
  nlohmann::json devices(const std::string& host) const;  // empty = of all hosts
  std::optional<nlohmann::json> ranks(JobId id) const;
  nlohmann::json children(const EntityId& id) const;
  // Newest `limit` events of an entity (job: and of what is below it), or those from `from` on.
  nlohmann::json events(const std::string& entity, std::optional<uint64_t> from,
                        size_t limit) const;
  // Without the actor's own part, which the caller adds.
  std::optional<nlohmann::json> show(const EntityId& id) const;
  nlohmann::json plan(const JobSpec& spec) const;
  nlohmann::json counts() const;  // hosts, hosts_up, jobs, jobs_active, last_seq

 private:
  nlohmann::json job_row(const JobState& job) const;
  ClusterState cluster() const;

  const Projection& projection_;
  const LiveBoard& board_;
  const Journal& journal_;
};

}  // namespace regrow
