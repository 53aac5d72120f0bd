// The environment of a rank, built from nothing: recipe, defaults and our own variables. Pure.
//
// Nothing of the agent's own environment gets in. `source` of each variable says where it came
// from: "regrow" (identity: always wins), "recipe" and its kin (as in the job's spec), "default"
// (only where the recipe says nothing).
//
//   auto environment = build_rank_environment(command, spec, host);
//
// The names and meanings are torchrun's, so that scripts and frameworks written for it work
// unchanged.
#pragma once

#include <string>
#include <vector>

#include "supervisors/host_protocol.h"

namespace regrow {

// What the agent adds of its own knowledge.
struct RankHost {
  std::string scope;  // first part of the marker: the agent's unique id
  HostName host;
  std::vector<DeviceReport> devices;  // all of the host's
  std::string home;                   // of the rank's user
  std::string user;
  std::string temporary_directory;  // this incarnation's own
  std::string rank_socket;          // where it may report to, and the token that it must say
  std::string rank_token;
  std::string rank_library;      // libregrow_rank; empty = none came with the agent
  std::string python_directory;  // of its Python module; empty = none, or Python finds it by itself
};

// "SCOPE/JOB/RANK/INC": the value of REGROW_INCARNATION. Whatever a rank starts inherits it, so
// that leftovers can be told from strangers.
std::string incarnation_marker(const std::string& scope, const IncarnationKey& key);

// Sorted by name, each name once.
std::vector<EnvVar> build_rank_environment(const SpawnCommand& command, const JobSpec& spec,
                                           const RankHost& host);

}  // namespace regrow
