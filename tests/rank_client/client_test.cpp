// The library's side: what it says, and that it never waits, never speaks for another and never
// writes into what is not its own.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <cmath>
#include <cstddef>
#include <set>
#include <thread>

#include <regrow/rank.hpp>

#include "tests/catch.h"
#include "tests/rank_client/support.h"

namespace regrow::testing {
namespace {

using std::chrono::steady_clock;

double seconds_since(steady_clock::time_point start) {
  return std::chrono::duration<double>(steady_clock::now() - start).count();
}

regrow_info info_of(Client& client) {
  regrow_info info = REGROW_INFO_INIT;
  client.init(&info);
  return info;
}

// Runs `work` in a child; true if that returned true.
template <class Work>
bool in_child(Work work) {
  pid_t pid = fork();
  if (pid == 0) _exit(work() ? 0 : 1);
  int status = 1;
  waitpid(pid, &status, 0);
  return status == 0;
}

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.path() + "/rank.sock";
  Environment environment{supervised(path)};
};

TEST_CASE("the layout of regrow_info is what programs were compiled with") {
  static_assert(offsetof(regrow_info, supervised) == 8);
  static_assert(offsetof(regrow_info, rank) == 12);
  static_assert(offsetof(regrow_info, job) == 24);
  static_assert(offsetof(regrow_info, incarnation) == 40);
  static_assert(offsetof(regrow_info, resume_step) == 48);
  static_assert(offsetof(regrow_info, checkpoint_directory) == 64);
  Environment environment(Variables{{"RANK", "5"}});
  // A later program's struct is longer, and what this library does not know stays as it was.
  struct {
    regrow_info known = REGROW_INFO_INIT;
    uint64_t later = 77;
  } longer;
  longer.known.size = sizeof longer;
  Client client;
  CHECK(client.init(&longer.known) == 0);
  CHECK(longer.known.rank == 5);
  CHECK(longer.known.size == sizeof longer);
  CHECK(longer.later == 77);
  longer.known.size = 20;
  CHECK(client.init(&longer.known) == -EINVAL);
  CHECK(client.init(nullptr) == 0);
}

TEST_CASE("without a supervisor every call succeeds") {
  Environment environment(Variables{});
  Client client;
  regrow_info info = info_of(client);
  CHECK(info.supervised == 0);
  CHECK(info.rank == 0);
  CHECK(info.world_size == 1);
  CHECK(info.generation == 0);
  CHECK(info.resume_step == -1);
  CHECK(std::string(info.resume_path) == "");
  CHECK(client.step(3, 0.5) == 0);
  CHECK(client.step(-1, 0.5) == -EINVAL);
  CHECK(client.generation() == 0);
  auto start = steady_clock::now();
  CHECK(client.finish(60'000) == 0);
  CHECK(seconds_since(start) < 30);
}

TEST_CASE("under torchrun it knows who it is, under regrow all of it") {
  {
    Environment environment(Variables{{"RANK", "3"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"TORCHELASTIC_RESTART_COUNT", "2"}});
    Client client;
    regrow_info info = info_of(client);
    CHECK(info.supervised == 0);
    CHECK(info.rank == 3);
    CHECK(info.world_size == 8);
    CHECK(info.local_rank == 1);
    CHECK(info.restart_count == 2);
    CHECK(client.step(1, NAN) == 0);
  }
  Fixture fixture;
  Environment environment(Variables{{"RANK", "3"},
                                    {"REGROW_SOCKET", fixture.path},
                                    {"REGROW_TOKEN", kToken},
                                    {"REGROW_JOB", "7"},
                                    {"REGROW_GENERATION", "4"},
                                    {"REGROW_INCARNATION", "uid/7/3/9"},
                                    {"REGROW_RESUME_STEP", "120"},
                                    {"REGROW_RESUME_PATH", "/c/step_120"},
                                    {"REGROW_CHECKPOINT_DIR", "/c"}});
  Client client;
  regrow_info info = info_of(client);
  CHECK(info.supervised == 1);
  CHECK(info.job == 7);
  CHECK(info.generation == 4);
  CHECK(info.incarnation == 9);
  CHECK(info.resume_step == 120);
  CHECK(std::string(info.resume_path) == "/c/step_120");
  CHECK(std::string(info.checkpoint_directory) == "/c");
}

TEST_CASE("it says its token first, then steps; step() alone is enough") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  client.step(7, 0.25);
  client.step(8, NAN);
  Fd agent = listener.accept();
  REQUIRE(agent);
  auto packets = receive_all(agent);
  REQUIRE(packets.size() == 3);
  CHECK(packets[0].kind() == Kind::hello);
  CHECK(packets[0].bytes.substr(8) == kToken);
  FrameReader step = packets[1].frame();
  CHECK(step.number() == 7);
  CHECK(step.real() == 0.25);
  CHECK(std::abs(step.number() - wall_clock_us()) < 60'000'000);
  step = packets[2].frame();
  CHECK(step.number() == 8);
  CHECK(std::isnan(step.real()));
}

TEST_CASE("what the agent says: a generation, things that are not known, rubbish") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  CHECK(client.generation() == 3);
  Fd agent = listener.accept();
  FrameWriter welcome(Kind::welcome), later(static_cast<Kind>(200)), distant(Kind::welcome, 9);
  send_frame(agent, welcome.number(5));
  send_frame(agent, later.number(6));
  send_frame(agent, distant.number(7));
  send_frame(agent, FrameWriter(Kind::welcome));  // without a generation
  std::string rubbish(1500, 'x');
  send(agent.get(), rubbish.data(), rubbish.size(), MSG_NOSIGNAL);
  send(agent.get(), "r", 1, MSG_NOSIGNAL);
  CHECK(client.generation() == 5);
  client.step(1, 0);
  CHECK(receive_all(agent).back().first_number() == 1);
}

TEST_CASE("a full socket makes nobody wait, and the newest step wins") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  constexpr int64_t kSteps = 20'000;
  for (int64_t step = 1; step <= kSteps; ++step) client.step(step, 0);
  Fd agent = listener.accept();
  auto packets = receive_all(agent);
  REQUIRE(packets.size() > 10);
  REQUIRE(packets.size() < kSteps);  // it was full
  CHECK(packets.back().first_number() < kSteps);
  client.generation();  // anything that looks at the socket
  packets = receive_all(agent);
  REQUIRE(packets.size() == 1);
  CHECK(packets[0].first_number() == kSteps);
}

TEST_CASE("a new agent is found, and told the newest step") {
  Fixture fixture;
  Client client;
  auto listener = std::make_unique<Listener>(fixture.path);
  client.step(1, 0);
  Fd agent = listener->accept();
  CHECK(receive_all(agent).size() == 2);
  auto meet_again = [&](int64_t step) {
    listener = nullptr;
    listener = std::make_unique<Listener>(fixture.path);
    agent = Fd();
    auto start = steady_clock::now();
    while (!(agent = listener->accept()) && seconds_since(start) < 10) {
      client.generation();
      usleep(1000);
    }
    REQUIRE(agent);
    auto packets = receive_all(agent);
    REQUIRE(packets.size() == 2);
    CHECK(packets[0].kind() == Kind::hello);
    CHECK(packets[1].first_number() == step);
  };
  // What the old one had read the new one may never have heard of.
  meet_again(1);
  listener = nullptr;
  agent = Fd();
  for (int64_t step = 2; step <= 50; ++step) CHECK(client.step(step, 0) == 0);
  meet_again(50);
}

TEST_CASE("it knocks at most once in 100 ms") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  auto start = steady_clock::now();
  int knocks = 0;
  int64_t steps = 0;
  while (seconds_since(start) < 0.5) {
    client.step(steps++, 0);
    knocks += static_cast<bool>(listener.accept());  // and closed at once
  }
  double seconds = seconds_since(start);
  CHECK(steps > 100);
  CHECK(knocks >= 2);
  CHECK(knocks <= 2 + static_cast<int>(seconds / 0.1));
}

TEST_CASE("who is refused does not knock again") {
  Fixture fixture;
  Listener listener(fixture.path);
  for (bool unread : {false, true}) {
    Client client;
    CHECK(info_of(client).supervised == 1);
    client.step(1, 0);
    Fd agent = listener.accept();
    REQUIRE(agent);
    // With something unread the close is a reset.
    if (!unread) receive_all(agent);
    FrameWriter refused(Kind::refused);
    send_frame(agent, refused.text("no", 2));
    agent = Fd();
    for (int i = 0; i < 25; ++i) {
      CHECK(client.step(2 + i, 0) == 0);
      usleep(10'000);
    }
    CHECK_FALSE(listener.accept());
    CHECK(info_of(client).supervised == 0);
    CHECK(client.finish(10'000) == 0);
  }
}

TEST_CASE("finish waits for the answer, and not for ever") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  client.step(9, 0);
  Fd agent = listener.accept();
  auto start = steady_clock::now();
  CHECK(client.finish(80) == 0);
  CHECK(seconds_since(start) >= 0.07);  // it counts in whole milliseconds
  auto packets = receive_all(agent);
  REQUIRE(packets.size() == 3);
  CHECK(packets[2].kind() == Kind::finish);
  CHECK(packets[2].first_number() == 9);

  // An agent that dies of it and comes back is told again.
  receive_all(agent);
  std::thread answers([&] {
    auto start = steady_clock::now();
    auto wait_finish = [&](const Fd& fd) {
      while (seconds_since(start) < 10) {
        for (const Packet& packet : receive_all(fd)) {
          if (packet.kind() == Kind::finish) return true;
        }
        usleep(1000);
      }
      return false;
    };
    wait_finish(agent);
    agent = Fd();
    Fd next;
    while (!(next = listener.accept()) && seconds_since(start) < 10) usleep(1000);
    if (wait_finish(next)) send_frame(next, FrameWriter(Kind::finished));
    agent = std::move(next);
  });
  CHECK(client.finish(20'000) == 1);
  answers.join();
}

TEST_CASE("a forked child is silent until it asks for itself") {
  Fixture fixture;
  Listener listener(fixture.path);
  SECTION("by fork(), through the library's own functions") {
    // In a child of ours: the library has one client for the process.
    CHECK(in_child([&] {
      regrow::rank::init();
      regrow::rank::step(1);
      Fd agent = listener.accept();
      bool good = receive_all(agent).size() == 2;
      good = good &&
             in_child([] { return regrow::rank::step(100) && regrow::rank::generation() == 3; });
      good = good && receive_all(agent).empty() && !listener.accept();
      good = good &&
             in_child([] { return regrow::rank::init().supervised && regrow::rank::step(200); });
      Fd other = listener.accept();
      auto said = receive_all(other);
      good = good && said.size() == 2 && said[1].first_number() == 200;
      regrow::rank::step(2);
      auto packets = receive_all(agent);
      return good && packets.size() == 1 && packets[0].first_number() == 2;
    }));
  }
  SECTION("by a fork that nobody was told of") {
    Client client;
    client.step(1, 0);
    Fd agent = listener.accept();
    receive_all(agent);
    CHECK(in_child([&] { return client.step(100, 0) == 0; }));
    CHECK(receive_all(agent).empty());
    CHECK_FALSE(listener.accept());
    client.step(2, 0);
    CHECK(receive_all(agent).size() == 1);
  }
  SECTION("while another thread reports") {
    CHECK(in_child([&] {
      std::atomic<bool> stop = false;
      regrow::rank::init();
      std::thread reports([&] {
        for (int64_t step = 0; !stop; ++step) regrow::rank::step(step);
      });
      bool good = true;
      for (int i = 0; i < 50; ++i) {
        // A child with a locked client would hang.
        good = good && in_child([] {
                 alarm(20);
                 return regrow::rank::step(5);
               });
      }
      stop = true;
      reports.join();
      return good;
    }));
  }
}

std::set<int> sockets_that_pass_exec() {
  std::set<int> found;
  for (int fd = 0; fd < 1024; ++fd) {
    struct stat info = {};
    if (fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) && (fcntl(fd, F_GETFD) & FD_CLOEXEC) == 0)
      found.insert(fd);
  }
  return found;
}

TEST_CASE("its descriptor does not pass exec, and is none of 0, 1, 2") {
  Fixture fixture;
  Listener listener(fixture.path);
  auto before = sockets_that_pass_exec();
  Client client;
  client.step(1, 0);
  Fd agent = listener.accept();
  REQUIRE(agent);
  CHECK(sockets_that_pass_exec() == before);
  CHECK(in_child([&] {
    close(0);
    Client other;
    other.step(1, 0);
    bool left_alone = fcntl(0, F_GETFD) < 0;
    return left_alone && listener.accept();
  }));
}

TEST_CASE("a script that closes all descriptors gets none of its others written into") {
  Fixture fixture;
  Listener listener(fixture.path);
  CHECK(in_child([&] {
    Client client;
    client.step(1, 0);
    Fd agent = listener.accept();
    struct stat theirs = {}, ours = {};
    // Find the client's end: the one socket that is neither.
    int found = -1;
    for (int fd = 3; fd < 256 && found < 0; ++fd) {
      sockaddr_un name = {};
      socklen_t size = sizeof name;
      if (fd == agent.get() || fstat(fd, &theirs) != 0 || !S_ISSOCK(theirs.st_mode)) continue;
      if (getpeername(fd, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
          fixture.path == name.sun_path) {
        found = fd;
      }
    }
    if (found < 0) return false;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0 || dup2(pair[0], found) != found)
      return false;
    for (int64_t step = 2; step < 10; ++step) client.step(step, 0);
    char byte;
    bool silent = recv(pair[1], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    bool still_open = fstat(found, &ours) == 0 && S_ISSOCK(ours.st_mode);
    return silent && still_open;
  }));
}

TEST_CASE("threads report side by side") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  client.init(nullptr);
  Fd agent = listener.accept();
  std::atomic<int> left = 4;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client, &left, t] {
      for (int64_t step = 0; step < 3000; ++step) client.step(4 * step + t, 0.5);
      --left;
    });
  }
  size_t packets = 0, bad = 0;
  auto look = [&] {
    for (const Packet& packet : receive_all(agent)) {
      ++packets;
      bad += packet.kind() != Kind::step && packet.kind() != Kind::hello;
    }
  };
  while (left > 0) look();
  for (std::thread& thread : threads) thread.join();
  look();
  CHECK(packets > 100);
  CHECK(bad == 0);
}

TEST_CASE("what step() costs") {
  Fixture fixture;
  Listener listener(fixture.path);
  Client client;
  client.init(nullptr);
  Fd agent = listener.accept();
  auto cost = [&](const char* what, auto&& work) {
    constexpr int kCalls = 20'000;
    auto start = steady_clock::now();
    for (int i = 0; i < kCalls; ++i) work(i);
    WARN("step() " << what << ": " << seconds_since(start) / kCalls * 1e9 << " ns");
  };
  cost("with its socket full", [&](int i) { client.step(i, 0.5); });
  cost("sent and read", [&](int i) {
    client.step(i, 0.5);
    receive(agent);
  });
  Environment nothing(Variables{});
  Client alone;
  cost("without a supervisor", [&](int i) { alone.step(i, 0.5); });
  CHECK(receive_all(agent).size() > 0);
}

}  // namespace
}  // namespace regrow::testing
