#include "actors/controller/effect_runner.h"

#include <caf/all.hpp>

#include "actors/controller/messages.h"
#include "actors/controller/vital_actor.h"
#include "actors/log.h"

namespace regrow {
namespace {

using Self = caf::stateful_actor<EffectRunnerState>*;

std::string name_of(const AgentCommand& command) {
  return std::visit(
      [](const auto& c) -> std::string {
        if constexpr (std::is_same_v<std::decay_t<decltype(c)>, std::monostate>)
          return "nothing";
        else
          return c.kTypeName;
      },
      command);
}

void command(EffectRunnerState& st, const HostName& host, AgentCommand command) {
  auto it = st.links.find(host);
  if (it == st.links.end() || it->second.session.value == 0) {
    log_debug(name_of(command) + " for host/" + host.value + " waits for its return");
    return;
  }
  EffectRunnerState::Link& link = it->second;
  log_debug(name_of(command) + " for host/" + host.value +
            (link.answered ? "" : ", after its inventory"));
  if (!link.answered) {
    link.queued.push_back(std::move(command));
    return;
  }
  st.context->faults.hit("effect.before_send");
  st.sink->send(link.session, {std::move(command)});
  st.context->faults.hit("effect.after_send");
}

void spawn(EffectRunnerState& st, const fx::Spawn& e) {
  auto spec = st.specs.find(e.command.key.job);
  if (spec == st.specs.end()) {
    st.parked[e.command.key.job].push_back(e);
    return;
  }
  command(st, e.host, Spawn{e.command, spec->second});
}

void keep_spec(EffectRunnerState& st, const fx::KeepSpec& e) {
  st.specs[e.job] = e.spec;
  auto parked = st.parked.find(e.job);
  if (parked == st.parked.end()) return;
  auto waiting = std::move(parked->second);
  st.parked.erase(parked);
  for (const fx::Spawn& s : waiting) spawn(st, s);
}

void prepare(EffectRunnerState& st, const fx::Prepare& e) {
  st.prepares[{e.host, e.command.job}] = e.command;
  command(st, e.host, e.command);
}

void answer_inventory(EffectRunnerState& st, const fx::AnswerInventory& e) {
  auto it = st.links.find(e.host);
  if (it == st.links.end() || it->second.session != e.session) return;  // of an older connection
  EffectRunnerState::Link& link = it->second;
  bool first = !link.answered;
  std::vector<AgentCommand> commands{InventoryAnswer{e.keep, e.kill}};
  if (first) {
    for (AgentCommand& c : link.queued) {
      if (!std::holds_alternative<PrepareCommand>(c)) commands.push_back(std::move(c));
    }
    for (const auto& [key, c] : st.prepares) {
      if (key.first == e.host) commands.push_back(c);
    }
    link.queued.clear();
  }
  link.answered = true;
  log_debug("inventory of host/" + e.host.value + " answered, " +
            std::to_string(commands.size() - 1) + " commands follow");
  st.context->faults.hit("effect.before_send");
  st.sink->send(link.session, std::move(commands));
  st.context->faults.hit("effect.after_send");
}

void perform(EffectRunnerState& st, const Effect& effect) {
  std::visit(Overloaded{
                 [&](const fx::Spawn& e) { spawn(st, e); },
                 [&](const fx::Stop& e) { command(st, e.host, e.command); },
                 [&](const fx::AnswerInventory& e) { answer_inventory(st, e); },
                 [&](const fx::Acknowledge& e) { command(st, e.host, Acknowledge{{e.key}}); },
                 [&](const fx::Prepare& e) { prepare(st, e); },
                 [&](const fx::Regroup& e) { command(st, e.host, e.command); },
                 [&](const fx::Go& e) { command(st, e.host, e.command); },
                 [&](const fx::KeepSpec& e) { keep_spec(st, e); },
                 [&](const fx::DropSession& e) { st.sink->drop(e.session, e.why); },
             },
             effect);
}

void forget_job(EffectRunnerState& st, JobId job) {
  st.specs.erase(job);
  st.parked.erase(job);
  std::erase_if(st.prepares, [&](const auto& entry) { return entry.first.second == job; });
}

}  // namespace

caf::behavior effect_runner(Self self, Context* context, CommandSink* sink) {
  end_process_on_exception(self, context->fatal);
  self->state.context = context;
  self->state.sink = sink;
  return {
      [self](const msg::Perform& m) { perform(self->state, *m.effect); },
      [self](const msg::SessionUp& m) {
        self->state.links[m.host] = EffectRunnerState::Link{m.session, false, {}};
      },
      [self](const msg::SessionDown& m) {
        auto it = self->state.links.find(m.host);
        if (it != self->state.links.end() && it->second.session == m.session)
          self->state.links.erase(it);
      },
      [self](const msg::ForgetJob& m) { forget_job(self->state, m.job); },
  };
}

}  // namespace regrow
