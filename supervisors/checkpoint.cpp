#include "supervisors/checkpoint.h"

#include <algorithm>
#include <functional>

namespace regrow {
namespace {

using ByHost = std::map<HostName, const CheckpointFound*>;

std::string base_name(const std::string& path) {
  size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

// Why this step cannot be resumed from; empty if it can.
std::string problem_shared(const ByHost& seen) {
  std::string problem = "incomplete";
  for (const auto& [host, found] : seen) {
    if (found->complete) return "";
    if (!found->problem.empty()) problem = found->problem;
  }
  return problem;
}

std::string problem_of_every_host(const ByHost& seen, const std::vector<HostName>& host_of_rank) {
  for (const HostName& host : host_of_rank) {
    auto it = seen.find(host);
    if (it == seen.end()) return "not on " + host.value;
    if (!it->second->complete)
      return (it->second->problem.empty() ? "incomplete" : it->second->problem) + " on " +
             host.value;
  }
  return "";
}

std::string problem_of_shards(const CheckpointRule& rule, const ByHost& seen,
                              const std::vector<HostName>& host_of_rank) {
  size_t there = 0;
  for (uint32_t rank = 0; rank < host_of_rank.size(); ++rank) {
    auto it = seen.find(host_of_rank[rank]);
    if (it == seen.end()) continue;
    const auto& shards = it->second->shards;
    there += std::find(shards.begin(), shards.end(), rank) != shards.end();
  }
  bool marker = rule.marker.empty() || std::any_of(seen.begin(), seen.end(),
                                                   [](const auto& s) { return s.second->marker; });
  std::string problem;
  if (there < host_of_rank.size())
    problem = "shards " + std::to_string(there) + "/" + std::to_string(host_of_rank.size()) +
              " where their ranks run";
  if (!marker) problem += std::string(problem.empty() ? "" : ", ") + "marker missing";
  return problem;
}

}  // namespace

ResumePoint choose_resume_point(const CheckpointRule& rule,
                                const std::vector<HostName>& host_of_rank,
                                const std::map<HostName, PrepareReport>& reports) {
  std::map<int64_t, ByHost, std::greater<>> steps;  // newest first
  for (const auto& [host, report] : reports) {
    for (const CheckpointFound& found : report.checkpoints) steps[found.step][host] = &found;
  }
  bool local = rule.storage == StorageKind::host_local;
  // A manifest lists every rank's files: it can only be judged where all of them are.
  bool by_shard = rule.shards.find("{rank}") != std::string::npos && rule.manifest.empty();
  ResumePoint point;
  for (const auto& [step, seen] : steps) {
    std::string problem = !local     ? problem_shared(seen)
                          : by_shard ? problem_of_shards(rule, seen, host_of_rank)
                                     : problem_of_every_host(seen, host_of_rank);
    const std::string& path = seen.begin()->second->path;
    if (problem.empty()) {
      point.step = step;
      point.path = path;
      break;
    }
    point.rejected.push_back(base_name(path) + " rejected: " + problem);
  }
  return point;
}

}  // namespace regrow
