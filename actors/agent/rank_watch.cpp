// RankRunner: what becomes of a started incarnation, told by its shim or found out.
#include <errno.h>
#include <fcntl.h>
#include <kj/debug.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cinttypes>
#include <filesystem>

#include "actors/agent/child_process.h"
#include "actors/agent/leftovers.h"
#include "actors/agent/rank_environment.h"
#include "actors/agent/rank_runner.h"
#include "supervisors/blame.h"

namespace regrow {
namespace {

namespace fs = std::filesystem;

// A long state directory does not fit into a socket address; a descriptor's path does.
Fd connect_to_shim(const std::string& directory) {
  Fd at(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!at || !fd) return Fd();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/sock", at.get());
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return Fd();
  return fd;
}

// The lock that a shim holds for life; invalid if one does.
Fd try_lock(const std::string& directory) {
  Fd fd(open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return Fd();
  return fd;
}

}  // namespace

RankRunner::Connection::Connection(kj::UnixEventPort& port, Fd socket)
    : fd(std::move(socket)),
      observer(port, fd.get(), kj::UnixEventPort::FdObserver::OBSERVE_READ) {}

void RankRunner::adopt_all(bool rebooted) {
  std::error_code error;
  for (fs::directory_iterator job(ranks_directory_, error), end; !error && job != end;
       job.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator at(job->path(), inner); !inner && at != end; at.increment(inner)) {
      auto key =
          parse_incarnation_path(job->path().filename().string(), at->path().filename().string());
      if (!key) continue;
      record_.raise(key->job, key->rank, key->incarnation);
      bool acknowledged = file_exists(at->path().string() + "/acknowledged");
      if (acknowledged && !left_something(query(*key))) continue;
      Entry& entry = load(*key);
      entry.acknowledged = acknowledged;
      entry.voided = rebooted;
      settle(entry);
      if (rebooted && entry.stage == Stage::connected) send(entry, "kill");
    }
  }
}

// An entry as the directory describes it.
RankRunner::Entry& RankRunner::load(const IncarnationKey& key) {
  Entry& entry = *(entries_[key] = std::make_unique<Entry>());
  entry.report.key = key;
  entry.report.state = ProcessState::starting;
  std::string directory = directory_of(key);
  auto bytes = read_file(directory + "/start");
  auto start = bytes ? decode_start_file(*bytes) : std::nullopt;
  if (start) entry.start = std::move(*start);
  bytes = read_file(directory + "/pid");
  auto leader = bytes ? decode_pid_file(*bytes) : std::nullopt;
  if (leader) {
    entry.report.state = ProcessState::running;
    entry.report.pid = leader->pid;
    entry.report.start_time = leader->start_time;
    entry.report.started_us = leader->started_us;
  }
  entry.follower = std::make_unique<ProgressFollower>(directory, entry.start.log_layout(),
                                                      entry.start.progress_pattern);
  listen_for_reports(entry);
  if (key.rank.value == 0 && !file_exists(directory + "/exit")) {
    auto number = [&entry](std::string_view name) {
      return static_cast<uint32_t>(atoll(std::string(entry.start.variable(name)).c_str()));
    };
    ports_.adopt(key.job, {number("REGROW_GENERATION")}, number("MASTER_PORT"));
  }
  return entry;
}

// Without a connection: is there an end, a shim, or neither? The order leaves no gap: a shim writes
// the exit file before it lets go of the lock.
void RankRunner::settle(Entry& entry) {
  if (finish_from_file(entry) || connect(entry)) return;
  std::string directory = directory_of(entry.report.key);
  // Somebody removed it, and the shim has left too: its last words went with it.
  if (!file_exists(directory)) return begin_cleaning(entry);
  Fd lock = try_lock(directory);
  if (!lock) {  // a shim that is not listening yet, or not any more
    entry.stage = Stage::settling;
    return settle_later(entry.report.key);
  }
  if (finish_from_file(entry)) return;
  // No shim, and none can come: it would find the lock taken, and later the exit file.
  entry.lock = std::move(lock);
  begin_cleaning(entry);
}

void RankRunner::settle_later(const IncarnationKey& key) {
  tasks_.add(timer_.afterDelay(10 * kj::MILLISECONDS).then([this, key] {
    Entry* entry = find(key);
    if (entry != nullptr && entry->stage == Stage::settling) settle(*entry);
  }));
}

bool RankRunner::connect(Entry& entry) {
  Fd fd = connect_to_shim(directory_of(entry.report.key));
  if (!fd) return false;
  watch(entry, std::move(fd));
  return true;
}

void RankRunner::watch(Entry& entry, Fd socket) {
  entry.connection = kj::heap<Connection>(port_, std::move(socket));
  entry.stage = Stage::connected;
  if (!entry.pending_stop.empty()) send(entry, entry.pending_stop);
  entry.pending_stop.clear();
  tasks_.add(watch_on(entry.report.key));
}

kj::Promise<void> RankRunner::watch_on(IncarnationKey key) {
  Entry* entry = find(key);
  if (entry == nullptr || entry->connection.get() == nullptr) return kj::READY_NOW;
  return entry->connection->observer.whenBecomesReadable().then([this, key]() -> kj::Promise<void> {
    Entry* entry = find(key);
    if (entry == nullptr || entry->connection.get() == nullptr || !read_packets(*entry)) {
      return kj::READY_NOW;
    }
    return watch_on(key);
  });
}

// Until there is nothing to read now. False if the connection is over.
bool RankRunner::read_packets(Entry& entry) {
  while (true) {
    char packet[shim::kMaxPacketBytes];
    ssize_t n = recv(entry.connection->fd.get(), packet, sizeof packet, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (n <= 0) break;
    on_packet(entry, std::string_view(packet, static_cast<size_t>(n)));
    if (entry.connection.get() == nullptr) return false;
  }
  entry.connection = nullptr;
  settle(entry);
  return false;
}

void RankRunner::on_packet(Entry& entry, std::string_view packet) {
  if (packet == "ended") {
    if (finish_from_file(entry)) return;
    entry.connection = nullptr;  // could not write it: the lock comes free in a moment
    return settle(entry);
  }
  RankReport& report = entry.report;
  uint64_t pid = 0, start_time = 0;
  int64_t started_us = 0;
  std::string text(packet);
  if (sscanf(text.c_str(), "started %" SCNu64 " %" SCNu64 " %" SCNd64, &pid, &start_time,
             &started_us) != 3) {
    return;
  }
  bool news = report.state != ProcessState::running;
  report.state = ProcessState::running;
  report.pid = pid;
  report.start_time = start_time;
  report.started_us = started_us;
  if (!entry.follower) {
    entry.follower = std::make_unique<ProgressFollower>(
        directory_of(report.key), entry.start.log_layout(), entry.start.progress_pattern);
  }
  if (news) changed(entry);
}

void RankRunner::send(Entry& entry, const std::string& packet) {
  // A failure means that the shim is gone; the end of the connection says so as well.
  if (::send(entry.connection->fd.get(), packet.data(), packet.size(),
             MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    KJ_LOG(WARNING, "cannot reach the shim of", incarnation_path(entry.report.key),
           strerror(errno));
  }
}

// If the exit file is there the incarnation is final. False if not.
bool RankRunner::finish_from_file(Entry& entry) {
  auto bytes = read_file(directory_of(entry.report.key) + "/exit");
  auto exit = bytes ? decode_exit_file(*bytes) : std::nullopt;
  if (!exit) return false;
  apply_exit(*exit, entry.report);
  if (entry.socket) entry.socket->drain();
  if (entry.follower) {
    poll_progress(entry);
    entry.report.last_step = entry.follower->step();
  }
  entry.connection = nullptr;
  become_final(entry);
  return true;
}

void RankRunner::become_final(Entry& entry) {
  entry.stage = Stage::final;
  entry.connection = nullptr;
  entry.socket = nullptr;
  if (entry.shim_pid != 0) reap_later(entry.shim_pid);
  changed(entry);
  end_leftovers_later(entry);
}

// At once at first, then less and less often: what does not die may take hours.
void RankRunner::end_leftovers_later(Entry& entry) {
  if (!left_something(entry.report)) return;
  int64_t pause_ms = std::min<int64_t>(10ll << std::min(entry.leftover_scans++, 20u), 5000);
  tasks_.add(timer_.afterDelay(pause_ms * kj::MILLISECONDS).then([this, key = entry.report.key] {
    end_leftovers(key);
  }));
}

void RankRunner::end_leftovers(const IncarnationKey& key) {
  Entry* entry = find(key);
  if (entry == nullptr || entry->stage != Stage::final || !left_something(entry->report)) return;
  RankReport& report = entry->report;
  LeftoverScan scan =
      kill_leftovers(incarnation_marker(options_.uid, key), entry->voided ? 0 : report.pid,
                     entry->voided ? 0 : report.start_time);
  if (scan.found > 0) return end_leftovers_later(*entry);
  report.group_gone_us = wall_clock_us();
  // The next agent must not take the news for told: first it is not acknowledged any more.
  std::string directory = directory_of(key);
  unlink((directory + "/acknowledged").c_str());
  entry->acknowledged = false;
  auto bytes = read_file(directory + "/exit");
  if (bytes)
    replace_file(directory + "/exit", with_group_gone(*bytes, report.group_gone_us), 0644, true);
  remove_temporary(*entry);
  if (on_report_) on_report_(report);
}

void RankRunner::begin_cleaning(Entry& entry) {
  entry.stage = Stage::cleaning;
  entry.cleaning_since_us = wall_clock_us();
  clean(entry.report.key);
}

// Ends what a dead shim has left, again and again until nothing is found.
void RankRunner::clean(const IncarnationKey& key) {
  Entry* entry = find(key);
  if (entry == nullptr || entry->stage != Stage::cleaning) return;
  const RankReport& report = entry->report;
  // After a reboot the numbers of the old boot mean nothing; the marker still does.
  LeftoverScan scan =
      kill_leftovers(incarnation_marker(options_.uid, key), entry->voided ? 0 : report.pid,
                     entry->voided ? 0 : report.start_time);
  if (scan.found == 0) return finish_cleaned(*entry, "");
  if (wall_clock_us() - entry->cleaning_since_us > options_.cleaning_limit.us) {
    return finish_cleaned(*entry,
                          std::to_string(scan.found) + " of its processes could not be ended");
  }
  tasks_.add(timer_.afterDelay(10 * kj::MILLISECONDS).then([this, key] { clean(key); }));
}

void RankRunner::finish_cleaned(Entry& entry, const std::string& trouble) {
  RankReport& report = entry.report;
  // Where something carries its mark it was started, whatever is known of it.
  bool ran = report.pid != 0 || !trouble.empty();
  // A shim that was lost is a loss like that of a rank; only what cannot be started never started.
  bool lost = ran || !entry.stop_sent;
  report.state = lost ? ProcessState::gone : ProcessState::never_started;
  report.ended_by_us = entry.stop_sent;
  report.message = entry.voided ? "the host was restarted"
                   : !file_exists(directory_of(report.key))
                       ? "its directory was removed; how the rank ended is unknown"
                   : ran ? "regrow-shim was killed; how the rank ended is unknown"
                         : "regrow-shim was lost before it could start the rank";
  if (!trouble.empty()) report.message += "; " + trouble;
  int64_t now = wall_clock_us();
  if (ran) report.leader_ended_us = now;
  report.group_gone_us = trouble.empty() ? now : 0;
  std::string directory = directory_of(report.key);
  LogReader errors(directory, "stderr", entry.start.log_layout());
  LogExtent extent = errors.extent();
  uint64_t from =
      extent.end - std::min<uint64_t>(extent.end - extent.tail_begin, shim::kLastWordsBytes);
  if (extent.gap() == 0) from = extent.end - std::min<uint64_t>(extent.end, shim::kLastWordsBytes);
  report.last_words = valid_utf8(errors.read(extent, from, shim::kLastWordsBytes));
  replace_file(directory + "/exit", encode_exit_file(report), 0644, true);
  entry.lock = Fd();
  remove_temporary(entry);
  if (!finish_from_file(entry)) become_final(entry);  // could not be written: final all the same
}

void RankRunner::changed(Entry& entry) {
  const RankReport& report = entry.report;
  if (entry.stage == Stage::final && report.key.rank.value == 0) {
    auto port =
        static_cast<uint32_t>(atoll(std::string(entry.start.variable("MASTER_PORT")).c_str()));
    ports_.release(report.key.job, port);
  }
  if (constructed_ && on_report_) on_report_(report);
}

// May be large and slow to remove: a child does it.
void RankRunner::remove_temporary(Entry& entry) {
  const std::string& path = entry.start.temporary_directory;
  if (path.empty() || !path.starts_with(options_.temporary_root + "/regrow-")) return;
  pid_t pid = spawn_child({{"/bin/rm", "-rf", "--", path}, {}, {}});
  if (pid > 0) reap_later(pid);
}

void RankRunner::reap_later(pid_t pid) {
  bool waiting = !unreaped_.empty();
  unreaped_.insert(pid);
  if (waiting) return;
  tasks_.add(timer_.afterDelay(5 * kj::MILLISECONDS).then([this] { reap(); }));
}

// Each by its number: other children are not ours to wait for.
void RankRunner::reap() {
  std::erase_if(unreaped_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
  if (unreaped_.empty()) return;
  tasks_.add(timer_.afterDelay(50 * kj::MILLISECONDS).then([this] { reap(); }));
}

}  // namespace regrow
