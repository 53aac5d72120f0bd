#include "tests/sim/run.h"

#include <functional>

#include "tests/driver/text.h"
#include "tests/sim/world.h"

namespace regrow::sim {
namespace {

constexpr Duration kPatience = Duration::seconds(4 * 3600);

std::string unfinished(World& world, const Plan& plan) {
  std::string text = world.all_ended() ? "liveness: all jobs ended, but something remains"
                                       : "liveness: not every job ends";
  for (uint32_t i = 0; i < plan.jobs.size(); ++i) {
    const JobState* s = world.job_state(i);
    text += "\n  " + plan.jobs[i].spec.name + ": " +
            (s == nullptr ? "unknown" : "job/" + std::to_string(s->job.value));
    if (s == nullptr) continue;
    text += " " + std::string(to_string(s->phase)) + ", stage " + std::string(to_string(s->stage)) +
            ", wanted " + std::string(to_string(s->desired)) + ": " + s->phase_reason +
            "\n    slots " + value_text(s->slots);
  }
  for (uint32_t i = 0; i < plan.hosts; ++i) {
    SimAgent& a = world.agent(i);
    text += "\n  " + a.name().value + (a.session().value == 0 ? " (not connected)" : "");
    for (const auto& [key, p] : a.processes())
      text += " " + value_text(key) + "=" + std::string(to_string(p.report.state)) +
              (p.told ? "" : " (not told)");
  }
  if (auto* c = world.controller().find(EntityId::cluster()))
    text += "\n  leases " + value_text(std::get<ClusterState>(c->state()).leases) + " waiting " +
            value_text(std::get<ClusterState>(c->state()).waiting);
  return text;
}

void carry_out(World& world, const Plan& plan) {
  world.start();
  world.schedule_faults();
  world.run_until(plan.calm_from);
  world.no_more_crashes();
  Time end = plan.calm_from + kPatience;
  Time now = plan.calm_from;
  while (now < end && !(world.all_ended() && world.settled())) {
    world.heal_operators();
    now = now + Duration::seconds(60);
    world.run_until(now);
  }
  if (!world.all_ended()) throw Violation(unfinished(world, plan));
  if (!world.settled()) throw Violation(unfinished(world, plan));
  world.run_until(now + Duration::seconds(30));
  world.check_end();
}

}  // namespace

RunResult run_plan(const Plan& plan, const RunOptions& options) {
  RunResult result;
  World world(plan, options);
  try {
    carry_out(world, plan);
  } catch (const std::exception& e) {
    result.violation = e.what();
    result.plan = plan.text();
    const auto& records = world.controller().journal().records;
    for (size_t i = records.size() > 60 ? records.size() - 60 : 0; i < records.size(); ++i)
      result.tail += "  " + record_text(records[i]).substr(0, 400) + "\n";
  }
  result.marks = world.marks();
  result.events = world.controller().journal().records.size();
  for (const EventRecord& r : world.controller().journal().records)
    result.history = result.history * 31 + std::hash<std::string>{}(record_text(r));
  return result;
}

}  // namespace regrow::sim
