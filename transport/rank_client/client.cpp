#include "transport/rank_client/client.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

namespace regrow::rank_client {
namespace {

using rank_protocol::FrameReader;
using rank_protocol::FrameWriter;
using rank_protocol::Kind;

constexpr int64_t kConnectPauseMs = 100;
constexpr int kFinishPollMs = 20;
constexpr int kThreadPollMs = 100;
constexpr int kMostFramesAtOnce = 64;
// What the first version of the struct had.
constexpr size_t kSmallestInfo = offsetof(regrow_info, checkpoint_directory) + sizeof(char*);

constexpr size_t kSmallestMembership = offsetof(regrow_membership, resume_path) + sizeof(char*);

enum { kResumePath, kCheckpointDirectory, kSocket, kAddress, kMemberResumePath, kSavedPath };

int64_t clock_us(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1000;
}

int64_t now_ms() { return clock_us(CLOCK_MONOTONIC) / 1000; }

const char* variable(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

int64_t number(const char* text, int64_t otherwise) {
  char* end = nullptr;
  errno = 0;
  int64_t value = strtoll(text, &end, 10);
  return end == text || *end != '\0' || errno != 0 ? otherwise : value;
}

uint32_t small_number(const char* text, uint32_t otherwise) {
  int64_t value = number(text, -1);
  return value < 0 || value > UINT32_MAX ? otherwise : static_cast<uint32_t>(value);
}

// The start number at the end of "SCOPE/JOB/RANK/INCARNATION".
uint32_t incarnation_in(const char* marker) {
  const char* slash = strrchr(marker, '/');
  return slash == nullptr ? 0 : small_number(slash + 1, 0);
}

// Out of the way of a script that takes 0, 1 and 2 for granted.
int beyond_standard(int fd) {
  if (fd < 0 || fd > 2) return fd;
  int higher = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  close(fd);
  return higher;
}

// A path that does not fit into a socket address is reached through a descriptor of its directory.
bool connect_to(int fd, const char* path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const char* slash = strrchr(path, '/');
  int at = -1;
  if (strlen(path) < sizeof address.sun_path) {
    memcpy(address.sun_path, path, strlen(path));
  } else {
    char directory[4096];
    size_t length = slash == nullptr ? sizeof directory : static_cast<size_t>(slash - path);
    if (length >= sizeof directory) return false;
    memcpy(directory, path, length);
    directory[length] = '\0';
    at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0) return false;
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%.64s", at, slash + 1);
  }
  bool connected = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (at >= 0) close(at);
  return connected;
}

}  // namespace

struct Client::Guard {
  explicit Guard(Client& client) : client(client) { pthread_mutex_lock(&client.mutex_); }
  ~Guard() { pthread_mutex_unlock(&client.mutex_); }
  Client& client;
};

Client::~Client() {
  if (call_ != nullptr) on_regroup(nullptr, nullptr);
  for (bool runs = true; runs;) {
    pthread_mutex_lock(&calling_);
    runs = thread_runs_;
    pthread_mutex_unlock(&calling_);
    if (runs) poll(nullptr, 0, 1);
  }
  disconnect();
  for (char* text : strings_) free(text);
}

int Client::init(regrow_info* info) {
  Guard guard(*this);
  if (info != nullptr && info->size < kSmallestInfo) return -EINVAL;
  if (initialized_ && owner_ != getpid()) after_fork_in_child();
  if (foreign_) {  // it asks for itself: a connection of its own, which begins with nothing
    foreign_ = initialized_ = false;
    newest_ = Report();
    step_pending_ = finish_pending_ = finishing_ = false;
    join_pending_ = joining_ = saved_pending_ = false;
    tried_ms_ = -1'000'000;
  }
  init_once();
  exchange();
  if (info != nullptr) {
    uint64_t size = info->size;
    memcpy(info, &info_, size < sizeof info_ ? size : sizeof info_);
    info->size = size;
  }
  return info_.supervised;
}

int Client::step(int64_t step, double loss) {
  if (step < 0) return -EINVAL;
  Guard guard(*this);
  init_once();
  if (!reports()) return 0;
  newest_ = {step, loss, clock_us(CLOCK_REALTIME)};
  step_pending_ = true;
  exchange();
  return 0;
}

uint64_t Client::generation() {
  Guard guard(*this);
  init_once();
  exchange();
  return info_.generation;
}

int Client::finish(int timeout_ms) {
  int64_t deadline_ms = now_ms() + (timeout_ms < 0 ? 0 : timeout_ms);
  {
    Guard guard(*this);
    init_once();
    finish_pending_ = finishing_ = reports();
  }
  while (true) {
    pollfd wait = {-1, POLLIN, 0};
    {
      Guard guard(*this);
      exchange();
      if (!reports()) return 0;
      if (!finishing_) return 1;
      wait.fd = fd_;
    }
    int64_t left_ms = deadline_ms - now_ms();
    if (left_ms <= 0) return 0;
    poll(&wait, 1, left_ms < kFinishPollMs ? static_cast<int>(left_ms) : kFinishPollMs);
  }
}

// The thread may be in the middle of a call into Python, which may want to take it back.
int Client::on_regroup(regrow_regroup_fn call, void* argument) {
  pthread_mutex_lock(&calling_);
  int answer = 0;
  {
    Guard guard(*this);
    init_once();
    exchange();
    call_ = call;
    argument_ = argument;
    answer = reports() ? 1 : 0;
    if (call != nullptr && reports() && !thread_runs_) {
      sigset_t all, former;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &former);
      pthread_t thread;
      int failed = pthread_create(&thread, nullptr, &Client::run_thread, this);
      pthread_sigmask(SIG_SETMASK, &former, nullptr);
      if (failed == 0) pthread_detach(thread);
      thread_runs_ = failed == 0;
      if (failed != 0) answer = -failed;
    }
  }
  pthread_mutex_unlock(&calling_);
  return answer;
}

void* Client::run_thread(void* self) {
  auto& client = *static_cast<Client*>(self);
  while (true) {
    pollfd wait = {-1, POLLIN, 0};
    pthread_mutex_lock(&client.calling_);
    regrow_regroup_fn call = nullptr;
    void* argument = nullptr;
    uint64_t generation = 0;
    {
      Guard guard(client);
      client.exchange();
      bool over = client.call_ == nullptr || !client.reports();
      if (over) {
        client.thread_runs_ = false;
        pthread_mutex_unlock(&client.calling_);
        return nullptr;
      }
      generation = client.info_.generation;
      if (generation > client.member_.generation && generation > client.told_) {
        client.told_ = generation;
        call = client.call_;
        argument = client.argument_;
      }
      wait.fd = client.fd_;
    }
    if (call != nullptr) call(generation, argument);
    pthread_mutex_unlock(&client.calling_);
    poll(&wait, 1, kThreadPollMs);
  }
}

int Client::rejoin(int64_t step, bool intact, regrow_membership* out, int timeout_ms) {
  if (out != nullptr && out->size < kSmallestMembership) return -EINVAL;
  int64_t deadline_ms = timeout_ms < 0 ? INT64_MAX : now_ms() + timeout_ms;
  {
    Guard guard(*this);
    init_once();
    exchange();
    joining_ = join_pending_ = reports() && must_join();
    join_ = {step < 0 ? -1 : step, intact};
  }
  while (true) {
    pollfd wait = {-1, POLLIN, 0};
    {
      Guard guard(*this);
      exchange();
      if (!reports()) joining_ = false;
      if (!joining_) {
        if (out != nullptr) {
          uint64_t size = out->size;
          memcpy(out, &member_, size < sizeof member_ ? size : sizeof member_);
          out->size = size;
        }
        return 1;
      }
      wait.fd = fd_;
      if (now_ms() >= deadline_ms) {
        joining_ = join_pending_ = false;
        return 0;
      }
    }
    int64_t left_ms = deadline_ms - now_ms();
    poll(&wait, 1,
         left_ms < kFinishPollMs ? static_cast<int>(left_ms < 0 ? 0 : left_ms) : kFinishPollMs);
  }
}

int Client::saved(int64_t step, const char* path) {
  if (step < 0 || path == nullptr || *path == '\0' || strlen(path) >= PATH_MAX) return -EINVAL;
  Guard guard(*this);
  init_once();
  if (!reports()) return 0;
  keep_text(kSavedPath, path);
  saved_step_ = step;
  saved_pending_ = true;
  exchange();
  return 0;
}

void Client::after_fork_in_child() {
  if (initialized_) foreign_ = true;
  // The thread is the parent's, and whoever holds this lock there is not here.
  thread_runs_ = false;
  call_ = nullptr;
  calling_ = PTHREAD_MUTEX_INITIALIZER;
  disconnect();
}

void Client::init_once() {
  if (initialized_) return;
  initialized_ = true;
  owner_ = getpid();
  read_environment();
}

void Client::read_environment() {
  const char* names[] = {"REGROW_RESUME_PATH", "REGROW_CHECKPOINT_DIR", "REGROW_SOCKET",
                         "MASTER_ADDR", "REGROW_RESUME_PATH"};
  for (int i = 0; i < 5; ++i) keep_text(i, variable(names[i]));
  auto text = [this](int i) { return strings_[i] == nullptr ? "" : strings_[i]; };
  info_.rank = small_number(variable("RANK"), small_number(variable("REGROW_RANK"), 0));
  info_.world_size = small_number(variable("WORLD_SIZE"), 1);
  info_.local_rank = small_number(variable("LOCAL_RANK"), 0);
  info_.job = static_cast<uint64_t>(number(variable("REGROW_JOB"), 0));
  info_.generation = static_cast<uint64_t>(number(variable("REGROW_GENERATION"), 0));
  info_.incarnation = incarnation_in(variable("REGROW_INCARNATION"));
  info_.restart_count = small_number(variable("TORCHELASTIC_RESTART_COUNT"), 0);
  info_.resume_step = number(variable("REGROW_RESUME_STEP"), -1);
  info_.resume_path = text(kResumePath);
  info_.checkpoint_directory = text(kCheckpointDirectory);
  const char* token = variable("REGROW_TOKEN");
  info_.supervised = text(kSocket)[0] != '\0' && strlen(token) == sizeof token_;
  if (info_.supervised != 0) memcpy(token_, token, sizeof token_);
  member_.generation = info_.generation;
  member_.rank = info_.rank;
  member_.world_size = info_.world_size;
  member_.source = -1;
  member_.source_step = -1;
  member_.resume_step = info_.resume_step;
  member_.master_port = small_number(variable("MASTER_PORT"), 0);
  member_.master_address = text(kAddress);
  member_.resume_path = text(kMemberResumePath);
  joins_first_ = strcmp(variable("REGROW_JOIN"), "1") == 0;
}

void Client::keep_text(int which, const char* text) {
  free(strings_[which]);
  strings_[which] = strdup(text);
}

void Client::exchange() {
  if (initialized_ && !foreign_ && owner_ != getpid()) after_fork_in_child();
  if (!reports()) return;
  if (fd_ >= 0 && !holds_socket()) fd_ = -1;  // somebody else's by now
  if (fd_ >= 0) receive();
  if (fd_ < 0) connect();
  send_pending();
  if (!reports()) disconnect();
}

void Client::connect() {
  int64_t now = now_ms();
  if (!reports() || now - tried_ms_ < kConnectPauseMs) return;
  tried_ms_ = now;
  int fd = beyond_standard(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd < 0) return;
  struct stat info = {};
  if (!connect_to(fd, strings_[kSocket]) || fstat(fd, &info) != 0) {
    close(fd);
    return;
  }
  fd_ = fd;
  device_ = info.st_dev;
  inode_ = info.st_ino;
  // Of what the one before had read nothing is known.
  hello_pending_ = true;
  step_pending_ = newest_.step >= 0;
  finish_pending_ = finishing_;
  join_pending_ = joining_;
}

bool Client::holds_socket() const {
  struct stat info = {};
  return fstat(fd_, &info) == 0 && info.st_dev == device_ && info.st_ino == inode_;
}

void Client::disconnect() {
  if (fd_ >= 0 && holds_socket()) close(fd_);
  fd_ = -1;
}

bool Client::send(const FrameWriter& frame) {
  if (fd_ < 0) return false;
  ssize_t n;
  do {
    n = ::send(fd_, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (n < 0 && errno == EINTR);
  if (n >= 0) return true;
  bool full = errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM;
  if (!full) {
    receive();  // why, if it said so
    disconnect();
  }
  return false;
}

void Client::send_pending() {
  if (hello_pending_) {
    FrameWriter frame(Kind::hello);
    hello_pending_ = !send(frame.text(token_, sizeof token_));
  }
  if (hello_pending_) return;
  if (step_pending_) {
    FrameWriter frame(Kind::step);
    step_pending_ = !send(frame.number(newest_.step).real(newest_.loss).number(newest_.time_us));
  }
  if (join_pending_) {
    FrameWriter frame(Kind::join);
    frame.number(static_cast<int64_t>(info_.generation)).number(join_.step);
    join_pending_ = !send(frame.number(join_.intact ? 1 : 0));
  }
  if (saved_pending_ && strings_[kSavedPath] != nullptr) {
    FrameWriter frame(Kind::saved);
    frame.number(saved_step_).text(strings_[kSavedPath], strlen(strings_[kSavedPath]));
    saved_pending_ = !send(frame);
  }
  if (finish_pending_ && !step_pending_) {
    FrameWriter frame(Kind::finish);
    finish_pending_ = !send(frame.number(newest_.step));
  }
}

void Client::receive() {
  bool failed = false;
  for (int i = 0; i < kMostFramesAtOnce && fd_ >= 0; ++i) {
    unsigned char packet[rank_protocol::kMaxFrameBytes];
    ssize_t n = recv(fd_, packet, sizeof packet, MSG_DONTWAIT | MSG_TRUNC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    // A reset comes before what had been said; once.
    if (n < 0 && errno == ECONNRESET && !failed) {
      failed = true;
      continue;
    }
    if (n <= 0) return disconnect();
    FrameReader frame(packet, static_cast<size_t>(n));
    on_frame(frame);
  }
}

void Client::on_frame(FrameReader& frame) {
  if (frame.kind() == Kind::welcome || frame.kind() == Kind::regroup) {
    auto generation = static_cast<uint64_t>(frame.number());
    if (frame.good()) heard_of(generation);
  }
  if (frame.kind() == Kind::go) on_go(frame);
  if (frame.kind() == Kind::refused) info_.supervised = 0;
  if (frame.kind() == Kind::finished) finishing_ = finish_pending_ = false;
}

void Client::heard_of(uint64_t generation) {
  if (generation <= info_.generation) return;
  info_.generation = generation;
  join_pending_ = joining_;
}

void Client::on_go(FrameReader& frame) {
  regrow_membership go = member_;
  go.generation = static_cast<uint64_t>(frame.number());
  go.world_size = static_cast<uint32_t>(frame.number());
  go.source = static_cast<int32_t>(frame.number());
  go.source_step = frame.number();
  go.resume_step = frame.number();
  go.master_port = static_cast<uint32_t>(frame.number());
  char texts[rank_protocol::kMaxFrameBytes + 1] = {};
  size_t length = frame.left();
  frame.text(texts, length);
  size_t address = strlen(texts);
  bool good = frame.good() && address < length;
  // Of a generation that has been given up meanwhile.
  if (!good || !joining_ || go.generation < info_.generation) return;
  keep_text(kAddress, texts);
  keep_text(kMemberResumePath, texts + address + 1);
  go.master_address = strings_[kAddress] == nullptr ? "" : strings_[kAddress];
  go.resume_path = strings_[kMemberResumePath] == nullptr ? "" : strings_[kMemberResumePath];
  member_ = go;
  info_.generation = go.generation;
  joins_first_ = joining_ = join_pending_ = false;
}

}  // namespace regrow::rank_client
