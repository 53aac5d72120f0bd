// Where one incarnation's processes report to: a Unix socket in its directory, and the token that
// they must know. The other end is transport/rank_client; docs/rank-api.md says what goes over it.
//
// Owned by the rank runner, its loop's thread, nothing blocks. The token is in the start file, so
// that the next agent listens again and takes the same ranks back; the newest step lies beside it
// in `step`.
//
//   RankSocket socket(port, timer, settings);
//   while (…) if (auto step = socket.take_step()) follower.report(*step);
//   socket.drain();    // when the rank has ended: what it said last
//   socket.regroup(5, "rank 3 was lost");   // its join comes to on_join, and go() answers that
#pragma once

#include <kj/async-unix.h>
#include <kj/timer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "actors/agent/files.h"
#include "actors/agent/progress_follower.h"
#include "supervisors/host_protocol.h"

namespace regrow {

struct RankSocketSettings {
  std::string directory;  // the incarnation's
  std::string name;       // for the log: "rank/7/0 incarnation 1"
  std::string token;
  uint32_t uid = 0;  // who may connect
  uint32_t gid = 0;
  uint64_t generation = 0;
  // The rank is ready for a generation: said as it comes, and again when regroup() asks for it.
  std::function<void(Generation, int64_t step, bool intact)> on_join;
};

class RankSocket : private kj::TaskSet::ErrorHandler {
 public:
  // One that cannot listen says why in the log; a rank then runs as if it had no supervisor.
  RankSocket(kj::UnixEventPort& port, kj::Timer& timer, RankSocketSettings settings);
  ~RankSocket();  // nobody can connect any more

  static std::string path_in(const std::string& directory) { return directory + "/rank.sock"; }
  // 16 random bytes in hex.
  static std::string make_token();

  // The newest step that was not taken yet.
  std::optional<StepReport> take_step();
  // Reads all that was sent so far. For the end: it may take a moment.
  void drain();
  bool finish_said() const { return finish_said_; }
  // Calls the rank to a newer generation. Repeats are harmless.
  void regroup(Generation generation, const std::string& why);
  // Answers its join to that generation, and every repeat of it.
  void go(const GoCommand& command);
  size_t connections() const { return peers_.size(); }

 private:
  struct Peer {
    Fd fd;
    kj::UnixEventPort::FdObserver observer;  // gone before the descriptor
    bool welcome = false;                    // has said the token
    bool joins = false;                      // waits for go
    bool gone = false;
    int64_t pid;
    Peer(kj::UnixEventPort& port, Fd socket, int64_t pid);
  };

  void taskFailed(kj::Exception&& exception) override;
  void listen();
  void accept_all();
  kj::Promise<void> watch_listener();
  kj::Promise<void> watch(uint64_t id);
  kj::Promise<void> read_on(uint64_t id);
  size_t read_from(Peer& peer);  // frames
  bool on_packet(Peer& peer, std::string_view packet);
  void on_step(const StepReport& report);
  void on_join(Peer& peer, const JoinReport& join);
  void answer_join(Peer& peer);
  void refuse(const Fd& fd, int64_t pid, const std::string& why);
  void load_step();
  void save_step();

  kj::UnixEventPort& port_;
  kj::Timer& timer_;
  RankSocketSettings settings_;
  Fd listener_;
  kj::Own<kj::UnixEventPort::FdObserver> observer_;
  std::map<uint64_t, kj::Own<Peer>> peers_;
  uint64_t next_peer_ = 1;
  std::optional<StepReport> newest_;
  bool taken_ = true;
  bool finish_said_ = false;
  Generation generation_;  // newest that the rank was called to
  std::string called_why_;
  std::optional<JoinReport> join_;  // the rank's; its key is not used
  std::optional<GoCommand> go_;     // the answer to it
  bool refusal_logged_ = false;
  Fd step_file_;
  kj::TaskSet tasks_;  // last: cancelled before anything that its tasks use
};

}  // namespace regrow
