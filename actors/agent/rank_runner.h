// Starts, stops, adopts and reports the ranks of one host, through one regrow-shim each.
//
// Owned by the agent; everything on the event loop's thread, nothing blocks it for long. Its death
// touches no rank: the next one, given the same directories, finds them all again, ended ones with
// their status. Invariants: R-2 (the incarnation's directory is made before anything starts and
// never again), F-1 (incarnations below the highest seen are refused), F-2.
//
//   RankRunner runner(io.unixEventPort, timer, options, [&](const RankReport& r) { send(r); });
//   send(runner.spawn(command, spec));    // the answer; later changes come to the callback
//
// What an incarnation goes through here:
//   settling   a directory without an exit file: is there a shim? (exit file? connect? lock?)
//   connected  the shim tells us what happens
//   cleaning   the shim is dead: ending what it left, then the exit file is ours to write
//   final      reported until acknowledge(); what it left behind is killed until it is gone, and
//   then
//              its end is reported once more
#pragma once

#include <kj/async-unix.h>
#include <kj/timer.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/agent/allowed_users.h"
#include "actors/agent/files.h"
#include "actors/agent/incarnation_files.h"
#include "actors/agent/incarnation_record.h"
#include "actors/agent/port_leases.h"
#include "actors/agent/progress_follower.h"
#include "actors/agent/rank_socket.h"
#include "supervisors/host_protocol.h"
#include "transport/host_link.h"

namespace regrow {

// Of a report: may something of it still run?
inline bool is_alive(const RankReport& report) {
  return report.state == ProcessState::starting || report.state == ProcessState::running;
}

struct RankRunnerOptions {
  HostName host;
  std::string uid;      // the agent's: scope of the markers of its ranks
  std::string boot_id;  // a change voids what was there
  std::string address = "127.0.0.1";
  std::string run_directory;            // ranks/ lies here; may go with a reboot
  std::string state_directory;          // highest incarnations; stays
  std::string shim;                     // path of regrow-shim
  std::string rank_library;             // path of libregrow_rank; empty = none
  std::string python_directory;         // of its Python module; empty = none
  std::string temporary_root = "/tmp";  // short: sockets in TMPDIR must fit into 108 bytes
  uint32_t first_port = 20000;
  uint32_t last_port = 29999;
  uint32_t keep_incarnations = 3;  // acknowledged ones per slot, with their logs
  uint32_t keep_total = 2000;      // and on the whole host
  Duration prepare_limit = Duration::seconds(40);
  Duration module_check_limit = Duration::seconds(30);
  Duration cleaning_limit = Duration::seconds(30);
  AllowedUsers allowed_users;  // of an agent that runs as root
};

class RankRunner : private kj::TaskSet::ErrorHandler {
 public:
  // Called with every change that is not the direct answer to a call. Must not call back.
  using OnReport = std::function<void(const RankReport&)>;
  using OnJoin = std::function<void(const JoinReport&)>;

  // Adopts what is there; inventory() is complete at once.
  RankRunner(
      kj::UnixEventPort& port, kj::Timer& timer, RankRunnerOptions options, OnReport on_report,
      OnJoin on_join = [](const JoinReport&) {});
  ~RankRunner();

  // For the environment and pinning of ranks started from now on.
  void set_devices(std::vector<DeviceReport> devices) { devices_ = std::move(devices); }

  RankReport spawn(const SpawnCommand& command, const JobSpec& spec);
  RankReport stop(const StopCommand& command);
  // False while a shim or a helper of ours is still about its last business.
  bool idle() const { return unreaped_.empty(); }
  // Those of the named ranks that run are called to a newer generation / are told that it is
  // complete.
  void regroup(const RegroupCommand& command);
  void go(const GoCommand& command);
  // Every rank by its recipe's stop signal and scope, all with this grace.
  void stop_all(Duration grace);
  RankReport query(const IncarnationKey& key);
  // The highest that ever started here; lower ones and itself are refused.
  Incarnation highest(JobId job, RankIndex rank) const { return record_.highest(job, rank); }
  std::vector<RankReport> inventory() const;

  // Every running rank / those with new output since the last call of either.
  std::vector<ProgressReport> progress() { return collect_progress(true); }
  std::vector<ProgressReport> moved() { return collect_progress(false); }

  // The final report is durable elsewhere. Files stay for a while, for logs.
  void acknowledge(const IncarnationKey& key);
  // Its end is, and something that it left behind is not gone yet.
  bool acknowledged(const IncarnationKey& key);

  kj::Promise<PrepareReport> prepare(PrepareCommand command);
  LogChunk read_log(const LogQuery& query) const;

 private:
  enum class Stage { settling, connected, cleaning, final };
  struct Connection {
    Fd fd;
    kj::UnixEventPort::FdObserver observer;  // gone before the descriptor
    Connection(kj::UnixEventPort& port, Fd socket);
  };
  struct Entry {
    RankReport report;
    Stage stage = Stage::settling;
    StartSettings start;
    kj::Own<Connection> connection;
    std::unique_ptr<ProgressFollower> follower;
    std::unique_ptr<RankSocket> socket;  // while it may run
    std::string pending_stop;            // said when connected
    bool stop_sent = false;
    bool voided = false;  // by a reboot
    bool acknowledged = false;
    uint32_t leftover_scans = 0;
    Fd lock;             // ours while cleaning
    pid_t shim_pid = 0;  // our child, if we started it
    int64_t cleaning_since_us = 0;
  };
  struct User {
    std::string name;
    std::string home;
    uint32_t gid = 0;
    std::vector<uint32_t> groups;
    bool has_account = false;
  };

  void taskFailed(kj::Exception&& exception) override;
  std::string directory_of(const IncarnationKey& key) const;
  Entry* find(const IncarnationKey& key);

  // rank_spawn.cpp
  std::string choose_user(uint32_t uid, uint32_t gid, StartSettings& start);
  std::string prepare_start(const SpawnCommand& command, const JobSpec& spec, Entry& entry);
  std::string launch(Entry& entry);
  RankReport never_started(Entry& entry, const std::string& why);
  std::string make_temporary_directory(const IncarnationKey& key, StartSettings& start);
  RankReport end_unknown(const IncarnationKey& key, bool asked_for, const std::string& why);
  RankReport burn(const IncarnationKey& key, const std::string& why);
  const User& user(uint32_t uid);

  // rank_watch.cpp
  void adopt_all(bool rebooted);
  Entry& load(const IncarnationKey& key);
  void settle(Entry& entry);
  void settle_later(const IncarnationKey& key);
  bool connect(Entry& entry);
  void watch(Entry& entry, Fd socket);
  kj::Promise<void> watch_on(IncarnationKey key);
  bool read_packets(Entry& entry);
  void on_packet(Entry& entry, std::string_view packet);
  void send(Entry& entry, const std::string& packet);
  bool finish_from_file(Entry& entry);
  void become_final(Entry& entry);
  void end_leftovers_later(Entry& entry);
  void end_leftovers(const IncarnationKey& key);
  void begin_cleaning(Entry& entry);
  void clean(const IncarnationKey& key);
  void finish_cleaned(Entry& entry, const std::string& trouble);
  void changed(Entry& entry);
  void remove_temporary(Entry& entry);
  void reap_later(pid_t pid);
  void reap();

  void listen_for_reports(Entry& entry);
  bool poll_progress(Entry& entry);
  std::vector<ProgressReport> collect_progress(bool all);
  void forget_old(JobId job, RankIndex rank);
  void forget_oldest();
  Incarnation newest_on_disk(JobId job, RankIndex rank) const;

  kj::UnixEventPort& port_;
  kj::Timer& timer_;
  RankRunnerOptions options_;
  OnReport on_report_;
  OnJoin on_join_;
  bool constructed_ = false;  // before: changes show in inventory() only
  std::string ranks_directory_;
  IncarnationRecord record_;
  PortLeases ports_;
  std::vector<DeviceReport> devices_;
  std::map<IncarnationKey, std::unique_ptr<Entry>> entries_;  // not yet acknowledged
  std::map<uint32_t, User> users_;
  std::set<pid_t> unreaped_;
  std::set<std::string> modules_found_;  // interpreter and modules that passed the check
  std::shared_ptr<int> running_checks_ =
      std::make_shared<int>(0);  // threads that may hang; loop only
  kj::TaskSet tasks_;            // last: cancelled before anything that its tasks use
};

}  // namespace regrow
