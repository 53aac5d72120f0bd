// What agents say, handed to the tree; what the effect runner wants sent, handed to the link.
// Callbacks come on the KJ thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "actors/controller/context.h"
#include "actors/controller/effect_runner.h"
#include "actors/controller/live_board.h"
#include "transport/host_link.h"

namespace regrow {

// Who we are to agents.
struct LinkFacts {
  std::string cluster_id;
  Epoch epoch;
  std::string journal_directory;  // marked if an agent shows that it is an old copy
};

class LinkHandler final : public HostLinkHandler, public CommandSink {
 public:
  LinkHandler(Context& context, LiveBoard& board, LinkFacts facts)
      : context_(context), board_(board), facts_(std::move(facts)) {}

  // Before the first connection and after the last.
  void set_link(HostLinkServer* link) { link_ = link; }

  AttachAnswer agent_connected(SessionId session, const PeerIdentity& peer,
                               AgentHello hello) override;
  void agent_disconnected(SessionId session, const std::string& why) override;
  void heartbeat(SessionId session, std::vector<ProgressReport> progress, int64_t sent_us) override;
  void report(SessionId session, HostReports reports, Ack ack) override;

  void send(SessionId session, std::vector<AgentCommand> commands) override;
  void drop(SessionId session, std::string why) override;

 private:
  struct Peer {
    HostName host;
    std::string uid;
  };
  AttachAnswer stop_as_old_copy(const AgentHello& hello);
  AttachAnswer refused(const HostName& host, std::string why);
  void post_rank_reports(SessionId session, const HostName& host,
                         const std::vector<RankReport>& ranks, const Ack& ack);

  Context& context_;
  LiveBoard& board_;
  const LinkFacts facts_;
  HostLinkServer* link_ = nullptr;
  // KJ thread only. The sessions of one host are all of one agent: the newest is the host's, the
  // others are being dropped.
  std::map<SessionId, Peer> sessions_;
  std::map<HostName, std::string> refusals_;  // told last
};

}  // namespace regrow
