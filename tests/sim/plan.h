// What a seed means: hosts, jobs, what breaks and who asks for what, decided before anything runs.
#pragma once

#include <string>
#include <vector>

#include "supervisors/job_spec.h"
#include "tests/driver/random.h"

namespace regrow::sim {

// How a job's script behaves; the engine is not told.
struct JobPlan {
  JobSpec spec;
  std::string key;
  Time submit_at;
  int64_t steps = 40;
  Duration step_time = Duration::ms(500);
  int64_t checkpoint_every = 10;
  Duration start_up = Duration::ms(800);  // at most
  double peer_error = 0.5;                // survivors end with an error instead of hanging
  bool ignores_term = false;
  int64_t bug_at_step = -1;  // fails there every time, in the same way
  bool missing_program = false;
  int bind_thefts = 0;     // this often the port is taken by someone else
  double torn = 0;         // a shard of a checkpoint is never written
  bool rejoins = false;    // survivors keep their process
  double never_joins = 0;  // a survivor stays where it is, stuck
};

//   unkillable   the rank's process survives even KILL for a while (stuck in a driver)
//   deaf_agent   the agent beats, and carries out no order
REGROW_ENUM(FaultKind, kill_rank, exit_rank, out_of_memory, exit_zero, stop_rank, unkillable,
            link_reset, link_stall, deaf_agent, agent_restart, host_reboot, device_fault,
            controller_crash, controller_stall, entity_restart, slow_disk, cancel, pause, resume,
            cordon)

struct Fault {
  Time at;
  FaultKind kind;
  uint32_t job = 0;  // index of the plan's jobs
  uint32_t rank = 0;
  uint32_t host = 0;
  uint32_t device = 0;
  Duration lasts;
};

struct Plan {
  uint64_t seed = 0;
  std::string profile;
  uint32_t hosts = 2;
  uint32_t devices_per_host = 2;
  bool queue_commands = true;  // until an inventory is answered commands wait; or they are lost
  Duration slowest_message;    // between entities
  Duration slowest_write;      // a batch of the journal
  Duration slowest_link;
  std::vector<JobPlan> jobs;
  std::vector<Fault> faults;  // by time
  Time calm_from;             // no fault after this, all healed
  std::string text() const;
};

Plan make_plan(uint64_t seed);
JobSpec basic_spec(const std::string& name, uint32_t ranks);

}  // namespace regrow::sim
