#include "actors/controller/link_handler.h"

#include <atomic>
#include <caf/send.hpp>

#include "actors/controller/messages.h"
#include "actors/controller/old_copy.h"
#include "actors/controller/router.h"
#include "actors/log.h"

namespace regrow {
namespace {

constexpr uint32_t kProtocol = 1;
constexpr size_t kRefusalsKept = 1000;

Envelope to(EntityId entity, Input input) {
  return {std::move(entity), {}, {}, {}, std::move(input)};
}

std::string version_problem(uint32_t protocol) {
  if (protocol + 1 >= kProtocol && protocol <= kProtocol + 1) return "";
  return "the agent speaks host link version " + std::to_string(protocol) + ", this controller " +
         std::to_string(kProtocol) + "; they may differ by one: upgrade the older side";
}

std::string foreign_problem(const AgentHello& hello, const std::string& cluster_id) {
  return "host " + hello.name.value + " belongs to cluster " + hello.cluster_id +
         ", this controller is of cluster " + cluster_id +
         ". Point its agent at its own controller; if that cluster is gone for good, remove the "
         "agent's state and run directories on the host (its log names them) and start it again";
}

}  // namespace

AttachAnswer LinkHandler::agent_connected(SessionId session, const PeerIdentity& peer,
                                          AgentHello hello) {
  if (auto problem = version_problem(hello.protocol); !problem.empty())
    return refused(hello.name, problem);
  // Before its epoch is looked at, which counts the starts of other controllers.
  if (!hello.cluster_id.empty() && hello.cluster_id != facts_.cluster_id)
    return refused(hello.name, foreign_problem(hello, facts_.cluster_id));
  bool newer = hello.seen_epoch.number > facts_.epoch.number;
  bool twin = hello.seen_epoch.number == facts_.epoch.number &&
              hello.seen_epoch.start_id != facts_.epoch.start_id;
  if (newer || twin) return stop_as_old_copy(hello);
  for (const auto& [other, known] : sessions_) {
    if (known.host == hello.name && known.uid != hello.uid)
      return refused(hello.name, "another agent is connected as host " + hello.name.value +
                                     " with a different identity; give this one another --name");
  }
  for (const auto& [other, known] : sessions_) {
    if (known.host == hello.name) link_->drop(other, "the same agent connected again");
  }
  sessions_[session] = {hello.name, hello.uid};
  board_.set_session(hello.name, session);
  log_info("host/" + hello.name.value + " connected as " + peer.who + " over " + peer.transport +
           ", session " + std::to_string(session.value) + ", " +
           std::to_string(hello.ranks.size()) + " incarnations");
  caf::anon_send(context_.effects, msg::SessionUp{hello.name, session});
  EntityId host = EntityId::host(hello.name);
  post(context_, to(host, in::AgentConnected{session, std::move(hello)}));
  return {"", facts_.epoch, facts_.cluster_id};
}

AttachAnswer LinkHandler::stop_as_old_copy(const AgentHello& hello) {
  OldCopy found;
  found.seen_epoch = hello.seen_epoch.number;
  found.reason = "host " + hello.name.value + " obeys epoch " + std::to_string(found.seen_epoch) +
                 " of another controller, this one is only at " +
                 std::to_string(facts_.epoch.number) +
                 ": its journal is an old copy or a second controller runs. It stops so that no "
                 "rank is started twice";
  std::string why = explain(found, facts_.journal_directory);
  if (auto problem = mark_old_copy(facts_.journal_directory, found); !problem.empty())
    log_error("the journal could not be marked as an old copy: " + problem);
  context_.fatal(why);
  return {why, facts_.epoch, facts_.cluster_id};
}

// An agent asks again every few seconds: the log has each reason once.
AttachAnswer LinkHandler::refused(const HostName& host, std::string why) {
  if (refusals_.size() >= kRefusalsKept) refusals_.clear();
  if (std::string& last = refusals_[host]; last != why) {
    log_warning("host/" + host.value + " refused: " + why);
    last = why;
  }
  return {std::move(why), facts_.epoch, facts_.cluster_id};
}

void LinkHandler::agent_disconnected(SessionId session, const std::string& why) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  HostName host = it->second.host;
  sessions_.erase(it);
  if (board_.session(host) == session) board_.set_session(host, {});
  log_info("host/" + host.value + " disconnected: " + why);
  caf::anon_send(context_.effects, msg::SessionDown{host, session});
  post(context_, to(EntityId::host(host), in::AgentGone{session, why}));
}

void LinkHandler::heartbeat(SessionId session, std::vector<ProgressReport> progress, int64_t) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  post(context_, to(EntityId::host(it->second.host), in::AgentHeartbeat{session}));
  for (ProgressReport& report : progress) {
    board_.update(report);
    EntityId job = EntityId::job(report.key.job);
    post(context_, to(job, in::Progress{std::move(report)}));
  }
}

// The call is answered when every report in it is durable.
void LinkHandler::post_rank_reports(SessionId session, const HostName& host,
                                    const std::vector<RankReport>& ranks, const Ack& ack) {
  auto left = std::make_shared<std::atomic<size_t>>(ranks.size());
  Context* context = &context_;
  for (const RankReport& report : ranks) {
    Envelope envelope =
        to(EntityId::rank(report.key.job, report.key.rank), in::AgentReport{host, report, session});
    // If the rank's actor dies first, nobody calls `ack`: the agent connects again and repeats the
    // report.
    envelope.request = context_.replies.expect(envelope.to, [context, left, ack](const Reply&) {
      if (left->fetch_sub(1) != 1) return;
      context->faults.hit("report.before_ack");
      ack();
    });
    post(context_, std::move(envelope));
  }
}

void LinkHandler::report(SessionId session, HostReports reports, Ack ack) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  const HostName& host = it->second.host;
  for (PrepareReport& report : reports.prepares) {
    EntityId job = EntityId::job(report.job);
    post(context_, to(job, in::Prepared{host, std::move(report)}));
  }
  for (JoinReport& report : reports.joins) {
    EntityId job = EntityId::job(report.key.job);
    post(context_, to(job, in::Joined{host, std::move(report)}));
  }
  for (DeviceReport& report : reports.devices) {
    EntityId device = EntityId::device(host, report.name);
    in::DeviceSeen seen;
    seen.report = std::move(report);
    seen.session = session;
    post(context_, to(device, std::move(seen)));
  }
  if (reports.ranks.empty()) {
    ack();
  } else {
    post_rank_reports(session, host, reports.ranks, ack);
  }
}

void LinkHandler::send(SessionId session, std::vector<AgentCommand> commands) {
  link_->send(session, std::move(commands));
}

void LinkHandler::drop(SessionId session, std::string why) { link_->drop(session, std::move(why)); }

}  // namespace regrow
