#include "actors/agent/rank_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <kj/debug.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>

#include "actors/log.h"
#include "transport/rank_client/frame.h"

namespace regrow {
namespace {

using rank_protocol::FrameReader;
using rank_protocol::FrameWriter;
using rank_protocol::Kind;

constexpr size_t kMostPeers = 64;         // of one rank: its own processes, workers included
constexpr size_t kMostFramesAtOnce = 64;  // of one peer; more than that waits a moment
constexpr auto kFloodPause = 20 * kj::MILLISECONDS;
constexpr size_t kMostFramesAtEnd = 4096;  // a socket's buffer holds less

// The whole of it takes the same time wherever they differ.
bool equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned char difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

// As much as goes: a peer that does not read misses what it was told.
void send_frame(const Fd& fd, const FrameWriter& frame) {
  send(fd.get(), frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace

RankSocket::Peer::Peer(kj::UnixEventPort& port, Fd socket, int64_t pid)
    : fd(std::move(socket)),
      observer(port, fd.get(), kj::UnixEventPort::FdObserver::OBSERVE_READ),
      pid(pid) {}

RankSocket::RankSocket(kj::UnixEventPort& port, kj::Timer& timer, RankSocketSettings settings)
    : port_(port),
      timer_(timer),
      settings_(std::move(settings)),
      generation_{static_cast<uint32_t>(settings_.generation)},
      tasks_(*this) {
  step_file_ =
      Fd(open((settings_.directory + "/step").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  load_step();
  listen();
}

RankSocket::~RankSocket() {
  if (listener_) unlink(path_in(settings_.directory).c_str());
}

void RankSocket::taskFailed(kj::Exception&& exception) {
  KJ_LOG(ERROR, "rank socket", settings_.name, exception);
}

std::string RankSocket::make_token() {
  unsigned char bytes[rank_protocol::kTokenBytes / 2];
  // Never short and never interrupted for so few; waits only in a machine's first moments.
  KJ_SYSCALL(getrandom(bytes, sizeof bytes, 0));
  std::string token;
  for (unsigned char byte : bytes) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", byte);
    token += digits;
  }
  return token;
}

// A long state directory does not fit into a socket address; a descriptor's path does.
void RankSocket::listen() {
  Fd at(open(settings_.directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/rank.sock", at.get());
  if (at) unlinkat(at.get(), "rank.sock", 0);  // of an agent that was killed
  bool good =
      at && fd && bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  // Its owner is who may write to it.
  if (good && settings_.uid != geteuid())
    good = fchownat(at.get(), "rank.sock", settings_.uid, settings_.gid, 0) == 0;
  good = good && fchmodat(at.get(), "rank.sock", 0600, 0) == 0 && ::listen(fd.get(), 64) == 0;
  if (!good) {
    return log_warning(settings_.name + " cannot report its steps: no socket in " +
                       settings_.directory + ": " + strerror(errno));
  }
  listener_ = std::move(fd);
  observer_ = kj::heap<kj::UnixEventPort::FdObserver>(port_, listener_.get(),
                                                      kj::UnixEventPort::FdObserver::OBSERVE_READ);
  tasks_.add(watch_listener());
}

kj::Promise<void> RankSocket::watch_listener() {
  return observer_->whenBecomesReadable().then([this] {
    accept_all();
    return watch_listener();
  });
}

void RankSocket::accept_all() {
  while (listener_) {
    Fd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd && errno == EINTR) continue;
    if (!fd) return;
    ucred peer = {};
    socklen_t size = sizeof peer;
    if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        peer.uid != settings_.uid) {
      refuse(fd, peer.pid, "it is of uid " + std::to_string(peer.uid));
      continue;
    }
    if (peers_.size() >= kMostPeers) continue;  // it will try again
    uint64_t id = next_peer_++;
    peers_[id] = kj::heap<Peer>(port_, std::move(fd), peer.pid);
    tasks_.add(watch(id));
  }
}

kj::Promise<void> RankSocket::watch(uint64_t id) {
  auto found = peers_.find(id);
  if (found == peers_.end()) return kj::READY_NOW;
  return found->second->observer.whenBecomesReadable().then([this, id] { return read_on(id); });
}

// To the end before it is watched again: only what comes after that is told.
kj::Promise<void> RankSocket::read_on(uint64_t id) {
  auto found = peers_.find(id);
  if (found == peers_.end()) return kj::READY_NOW;
  size_t frames = read_from(*found->second);
  save_step();
  if (found->second->gone) {
    peers_.erase(found);
    return kj::READY_NOW;
  }
  if (frames < kMostFramesAtOnce) return watch(id);
  return timer_.afterDelay(kFloodPause).then([this, id] { return read_on(id); });
}

size_t RankSocket::read_from(Peer& peer) {
  size_t frames = 0;
  while (frames < kMostFramesAtOnce && !peer.gone) {
    char packet[rank_protocol::kMaxFrameBytes];
    ssize_t n = recv(peer.fd.get(), packet, sizeof packet, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return frames;
    ++frames;
    size_t size = std::max<ssize_t>(n, 0);
    // A longer one is not a frame that we know, and only its beginning is here.
    peer.gone = n <= 0 || !on_packet(peer, {packet, size <= sizeof packet ? size : 0});
  }
  return frames;
}

// False if the connection must end.
bool RankSocket::on_packet(Peer& peer, std::string_view packet) {
  FrameReader frame(packet.data(), packet.size());
  if (!peer.welcome) {
    char token[rank_protocol::kTokenBytes] = {};
    if (frame.kind() == Kind::hello) frame.text(token, sizeof token);
    bool hello = frame.kind() == Kind::hello && frame.good();
    if (hello && equal({token, sizeof token}, settings_.token)) {
      peer.welcome = true;
      FrameWriter answer(Kind::welcome);
      // Of one that has gone already the rest is still worth reading.
      send_frame(peer.fd, answer.number(generation_.value));
      return true;
    }
    refuse(peer.fd, peer.pid,
           hello              ? "its token is not this incarnation's"
           : frame.is_frame() ? "it did not begin with a hello of a version that we know"
                              : "it does not speak our protocol");
    return false;
  }
  if (frame.kind() == Kind::step) {
    StepReport report;
    report.step = frame.number();
    report.loss = frame.real();
    report.time_us = frame.number();
    if (frame.good()) on_step(report);
  }
  if (frame.kind() == Kind::join) {
    JoinReport join;
    join.generation = {static_cast<uint32_t>(frame.number())};
    join.step = frame.number();
    join.intact = frame.number() != 0;
    if (frame.good()) on_join(peer, join);
  }
  if (frame.kind() == Kind::saved) {
    int64_t step = frame.number();
    std::string path(frame.left(), '\0');
    frame.text(path.data(), path.size());
    if (frame.good())
      log_info(settings_.name + " has written its part of the checkpoint of step " +
               std::to_string(step) + ": " + path);
  }
  if (frame.kind() == Kind::finish) {
    int64_t step = frame.number();
    if (frame.good() && !finish_said_) {
      log_info(settings_.name + " says that it is about to finish" +
               (step >= 0 ? ", at step " + std::to_string(step) : ""));
    }
    finish_said_ = finish_said_ || frame.good();
    if (frame.good()) send_frame(peer.fd, FrameWriter(Kind::finished));  // it asks again if lost
  }
  return true;
}

void RankSocket::on_step(const StepReport& report) {
  if (report.step < 0) return;
  newest_ = report;
  // Nobody's progress lies in the future, and none before the one before.
  newest_->time_us = std::min(report.time_us, wall_clock_us());
  taken_ = false;
}

void RankSocket::regroup(Generation generation, const std::string& why) {
  if (generation < generation_) return;
  if (generation > generation_) {
    join_.reset();
    go_.reset();
  }
  generation_ = generation;
  called_why_ = why;
  if (join_) return settings_.on_join(join_->generation, join_->step, join_->intact);
  FrameWriter frame(Kind::regroup);
  frame.number(generation.value).text(why.data(), why.size());
  for (auto& [id, peer] : peers_) {
    if (peer->welcome) send_frame(peer->fd, frame);
  }
}

void RankSocket::on_join(Peer& peer, const JoinReport& join) {
  if (join.generation < generation_) {  // called further meanwhile
    FrameWriter frame(Kind::regroup);
    return send_frame(peer.fd,
                      frame.number(generation_.value).text(called_why_.data(), called_why_.size()));
  }
  peer.joins = true;
  if (go_ && go_->generation == join.generation) return answer_join(peer);
  generation_ = join.generation;
  join_ = join;
  go_.reset();
  settings_.on_join(join.generation, join.step, join.intact);
}

void RankSocket::go(const GoCommand& command) {
  if (!join_ || join_->generation != command.generation) return;
  go_ = command;
  for (auto& [id, peer] : peers_) {
    if (peer->joins) answer_join(*peer);
  }
}

void RankSocket::answer_join(Peer& peer) {
  FrameWriter frame(Kind::go);
  frame.number(go_->generation.value)
      .number(go_->world_size)
      .number(go_->source)
      .number(go_->source_step)
      .number(go_->resume_step)
      .number(go_->master_port)
      .text(go_->master_address.c_str(), go_->master_address.size() + 1)
      .text(go_->resume_path.data(), go_->resume_path.size());
  send_frame(peer.fd, frame);
  peer.joins = false;
}

std::optional<StepReport> RankSocket::take_step() {
  if (taken_) return std::nullopt;
  taken_ = true;
  return newest_;
}

void RankSocket::drain() {
  accept_all();
  for (size_t round = 0; round < kMostFramesAtEnd / kMostFramesAtOnce; ++round) {
    size_t frames = 0;
    for (auto& [id, peer] : peers_) frames += read_from(*peer);
    if (frames == 0) break;
  }
  save_step();
}

// Told to the peer, and to the log once: a process that tries again and again is not news.
void RankSocket::refuse(const Fd& fd, int64_t pid, const std::string& why) {
  FrameWriter answer(Kind::refused);
  send_frame(fd, answer.text(why.data(), why.size()));
  if (refusal_logged_) return;
  refusal_logged_ = true;
  log_warning(settings_.name + " refuses reports of process " + std::to_string(pid) + ": " + why);
}

void RankSocket::load_step() {
  char text[200] = {};
  if (!step_file_ || pread(step_file_.get(), text, sizeof text - 1, 0) <= 0) return;
  StepReport report;
  if (sscanf(text, "%" SCNd64 " %lg %" SCNd64, &report.step, &report.loss, &report.time_us) == 3)
    on_step(report);
}

// For an agent that finds the rank ended: what is not read from its output must be found here.
void RankSocket::save_step() {
  if (taken_ || !step_file_) return;
  char text[200];
  int size = snprintf(text, sizeof text, "%-20" PRId64 " %-24.17g %-20" PRId64 "\n", newest_->step,
                      newest_->loss, newest_->time_us);
  if (pwrite(step_file_.get(), text, static_cast<size_t>(size), 0) < 0)
    KJ_LOG(WARNING, "cannot write", settings_.directory.c_str(), strerror(errno));
}

}  // namespace regrow
