#include "tests/sim/plan.h"

#include <algorithm>

#include "tests/driver/text.h"

namespace regrow::sim {
namespace {

std::vector<FaultKind> kinds_of(const std::string& profile) {
  using enum FaultKind;
  if (profile == "control")
    return {agent_restart, controller_crash, controller_stall,
            slow_disk,     controller_crash, entity_restart};
  if (profile == "ranks")
    return {kill_rank, exit_rank,  out_of_memory,    exit_zero,
            stop_rank, unkillable, controller_crash, entity_restart};
  if (profile == "hosts")
    return {link_reset,  link_stall,   deaf_agent,       agent_restart,
            host_reboot, device_fault, controller_crash, link_stall};
  if (profile == "operators")
    return {cancel, pause, resume, cordon, kill_rank, controller_crash, link_reset};
  return {kill_rank,
          exit_rank,
          out_of_memory,
          exit_zero,
          stop_rank,
          unkillable,
          link_reset,
          link_stall,
          deaf_agent,
          agent_restart,
          host_reboot,
          device_fault,
          controller_crash,
          controller_crash,
          controller_stall,
          entity_restart,
          slow_disk,
          cancel,
          pause,
          resume,
          pause,
          resume,
          cordon};
}

JobPlan make_job(Random& r, const Plan& plan, uint32_t index) {
  JobPlan job;
  uint32_t room = plan.hosts * plan.devices_per_host;
  job.spec = basic_spec("job" + std::to_string(index),
                        static_cast<uint32_t>(r.between(1, std::min(room, 5u))));
  job.key = "key" + std::to_string(index);
  job.submit_at = Time{r.ms(0, 8000).us};
  job.steps = r.between(10, 80);
  job.step_time = r.ms(200, 1500);
  job.checkpoint_every = r.between(3, 15);
  job.start_up = r.chance(0.1) ? r.ms(5000, 30000) : r.ms(50, 2000);
  job.peer_error = r.chance(0.3) ? 0 : r.chance(0.5) ? 1 : 0.5;
  job.ignores_term = r.chance(0.2);
  job.torn = r.chance(0.3) ? 0.3 : 0;
  job.spec.timeouts.progress =
      r.chance(0.6) ? Duration::seconds(r.between(8, 30)) : Duration::seconds(60);
  job.spec.timeouts.stop_grace = Duration::seconds(r.between(1, 10));
  job.spec.timeouts.host = Duration::seconds(r.chance(0.7) ? 10 : 30);
  job.spec.timeouts.max_unreachable = Duration::seconds(r.chance(0.5) ? 60 : 600);
  job.spec.total_steps = static_cast<uint64_t>(job.steps);
  if (r.chance(0.2)) job.spec.checkpoint.storage = StorageKind::host_local;
  if (r.chance(0.15)) job.spec.success = SuccessRule::rank_zero;
  if (job.spec.ranks % 2 == 0 && r.chance(0.3)) job.spec.groups = 2;
  if (r.chance(0.2))
    job.spec.ranks_per_host = static_cast<uint32_t>((job.spec.ranks + plan.hosts - 1) / plan.hosts);
  if (r.chance(0.1)) job.spec.progress_pattern.clear();
  if (r.chance(0.1)) job.spec.devices.count = 0;
  if (r.chance(0.2)) job.spec.healthy_for = r.ms(5000, 40000);
  if (r.chance(0.2)) {
    for (Intensity& i : job.spec.intensity)
      i = {i.failure_class, static_cast<int32_t>(r.between(0, 3)),
           r.chance(0.3) ? r.ms(10000, 60000) : Duration{}};
  }
  if (r.chance(0.5)) {
    job.rejoins = true;
    job.spec.recovery = RecoveryScope::rank;
    job.spec.rendezvous = Rendezvous::store;
    job.spec.timeouts.rejoin = r.ms(4000, 30000);
    job.peer_error = 0;
    if (r.chance(0.2)) job.never_joins = 0.2;
  }
  if (plan.profile != "control") {
    if (r.chance(0.08)) job.bug_at_step = r.between(1, job.steps);
    if (r.chance(0.04)) job.missing_program = true;
    if (r.chance(0.15)) job.bind_thefts = static_cast<int>(r.between(1, 3));
  }
  return job;
}

Fault make_fault(Random& r, const Plan& plan, const std::vector<FaultKind>& kinds,
                 int64_t until_ms) {
  Fault f;
  f.at = Time{r.ms(500, until_ms).us};
  f.kind = r.pick(kinds);
  f.job = static_cast<uint32_t>(r.below(plan.jobs.size()));
  f.rank = static_cast<uint32_t>(r.below(plan.jobs[f.job].spec.ranks));
  f.host = static_cast<uint32_t>(r.below(plan.hosts));
  f.device = static_cast<uint32_t>(r.below(plan.devices_per_host));
  switch (f.kind) {
    case FaultKind::agent_restart:
      f.lasts = r.ms(50, plan.profile == "control" ? 4000 : 20000);
      break;
    case FaultKind::controller_crash:
      f.lasts = r.chance(0.7) ? r.ms(10, 2000) : r.ms(2000, 60000);
      break;
    case FaultKind::unkillable:
      f.lasts = r.ms(1000, 300000);
      break;
    case FaultKind::deaf_agent:
      f.lasts = r.ms(1000, 250000);
      break;
    case FaultKind::controller_stall:
      f.lasts = r.ms(500, 20000);
      break;
    case FaultKind::slow_disk:
      f.lasts = r.ms(100, 8000);
      break;
    case FaultKind::host_reboot:
      f.lasts = r.ms(3000, 120000);
      break;
    default:
      f.lasts = r.chance(0.5) ? r.ms(100, 9000) : r.ms(9000, 90000);
      break;
  }
  return f;
}

}  // namespace

JobSpec basic_spec(const std::string& name, uint32_t ranks) {
  JobSpec spec;
  spec.name = name;
  spec.ranks = ranks;
  spec.devices.kind = "sim";
  spec.command = {"train.py"};
  spec.progress_pattern = "step (?P<step>[0-9]+)";
  spec.checkpoint.directory = "/ckpt/" + name;
  spec.checkpoint.shards = "rank_{rank}.pt";
  spec.checkpoint.marker = "COMPLETE";
  for (size_t c = 0; c < FailureClass_names.size(); ++c)
    spec.intensity.push_back({static_cast<FailureClass>(c), 1000, {}});
  return spec;
}

Plan make_plan(uint64_t seed) {
  Random r(seed * 7919 + 17);
  Plan plan;
  plan.seed = seed;
  static const std::vector<std::string> kProfiles{"control", "ranks", "hosts", "operators",
                                                  "all",     "all",   "all"};
  plan.profile = r.pick(kProfiles);
  plan.hosts = static_cast<uint32_t>(r.between(1, 4));
  plan.devices_per_host = static_cast<uint32_t>(r.between(1, 3));
  plan.queue_commands = r.chance(0.5);
  plan.slowest_message = r.chance(0.2) ? Duration::ms(200) : Duration::ms(2);
  plan.slowest_write = r.chance(0.2) ? Duration::ms(500) : Duration::ms(5);
  plan.slowest_link = r.chance(0.3) ? Duration::ms(200) : Duration::ms(5);
  int64_t jobs = r.between(1, 3);
  for (int64_t i = 0; i < jobs; ++i)
    plan.jobs.push_back(make_job(r, plan, static_cast<uint32_t>(i)));
  int64_t until_ms = r.between(20000, 120000);
  int64_t faults = r.between(1, 14);
  auto kinds = kinds_of(plan.profile);
  for (int64_t i = 0; i < faults; ++i) plan.faults.push_back(make_fault(r, plan, kinds, until_ms));
  std::sort(plan.faults.begin(), plan.faults.end(),
            [](const Fault& a, const Fault& b) { return a.at < b.at; });
  plan.calm_from = Time{until_ms * 1000};
  for (const Fault& f : plan.faults) plan.calm_from = std::max(plan.calm_from, f.at + f.lasts);
  return plan;
}

std::string Plan::text() const {
  std::string out = "seed " + std::to_string(seed) + ", profile " + profile + ": " +
                    std::to_string(hosts) + " hosts with " + std::to_string(devices_per_host) +
                    " devices\n";
  for (const JobPlan& j : jobs) {
    out += "  " + j.spec.name + ": " + std::to_string(j.spec.ranks) + " ranks in " +
           std::to_string(j.spec.groups) + " groups, " + std::to_string(j.steps) + " steps of " +
           seconds_text(j.step_time.us) + ", checkpoint every " +
           std::to_string(j.checkpoint_every) + " (" +
           std::string(to_string(j.spec.checkpoint.storage)) + ")" + ", submitted at " +
           seconds_text(j.submit_at.us);
    if (j.rejoins) out += ", rejoins within " + seconds_text(j.spec.timeouts.rejoin.us);
    if (j.never_joins > 0) out += ", not always";
    if (j.ignores_term) out += ", ignores TERM";
    if (j.missing_program) out += ", program missing";
    if (j.bug_at_step >= 0) out += ", bug at step " + std::to_string(j.bug_at_step);
    if (j.bind_thefts > 0) out += ", port taken " + std::to_string(j.bind_thefts) + " times";
    if (j.spec.success == SuccessRule::rank_zero) out += ", ends with rank 0";
    out += "\n";
  }
  for (const Fault& f : faults) {
    std::string what;
    switch (f.kind) {
      case FaultKind::kill_rank:
      case FaultKind::exit_rank:
      case FaultKind::out_of_memory:
      case FaultKind::exit_zero:
      case FaultKind::unkillable:
      case FaultKind::stop_rank:
        what = jobs[f.job].spec.name + " rank " + std::to_string(f.rank);
        break;
      case FaultKind::cancel:
      case FaultKind::pause:
      case FaultKind::resume:
        what = jobs[f.job].spec.name;
        break;
      case FaultKind::controller_crash:
      case FaultKind::controller_stall:
      case FaultKind::entity_restart:
      case FaultKind::slow_disk:
        what = "for " + seconds_text(f.lasts.us);
        break;
      default:
        what = "h" + std::to_string(f.host + 1) + " for " + seconds_text(f.lasts.us);
        if (f.kind == FaultKind::device_fault) what += " device " + std::to_string(f.device);
    }
    out += "  " + seconds_text(f.at.us) + " " + std::string(to_string(f.kind)) + " " + what + "\n";
  }
  return out;
}

}  // namespace regrow::sim
