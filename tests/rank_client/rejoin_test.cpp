// A generation that ends and one that begins: the library with a bare listener, and with the
// agent's end.
#include <kj/async-io.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "actors/agent/rank_socket.h"
#include "tests/catch.h"
#include "tests/rank_client/support.h"

namespace regrow::testing {
namespace {

using std::chrono::steady_clock;

double ms_since(steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(steady_clock::now() - start).count();
}

bool eventually(const std::function<bool()>& done, int limit_ms = 10'000) {
  auto start = steady_clock::now();
  while (!done()) {
    if (ms_since(start) > limit_ms) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

struct Fixture {
  TemporaryDirectory directory;
  std::string path = directory.path() + "/rank.sock";
  Environment environment;
  Listener listener{path};
  Client client;

  explicit Fixture(Variables more = {}) : environment(with(more)) {}
  Variables with(Variables more) const {
    for (const auto& [name, value] : supervised(path)) more.emplace(name, value);
    return more;
  }
  Fd accept() {
    Fd agent;
    REQUIRE(eventually([&] {
      agent = listener.accept();
      return static_cast<bool>(agent);
    }));
    return agent;
  }
};

// The next packet of this kind; those of others before it are passed over.
std::optional<Packet> next_of(const Fd& fd, Kind kind) {
  std::optional<Packet> found;
  eventually([&] {
    while (auto packet = receive(fd)) {
      if (packet->kind() == kind) found = packet;
      if (found) return true;
    }
    return false;
  });
  return found;
}

void regroup(const Fd& agent, int64_t generation) {
  FrameWriter frame(Kind::regroup);
  REQUIRE(send_frame(agent, frame.number(generation).text("rank 3 was lost", 15)));
}

void go(const Fd& agent, int64_t generation, int64_t source, const std::string& path = "") {
  FrameWriter frame(Kind::go);
  frame.number(generation).number(4).number(source).number(41).number(20).number(29500);
  REQUIRE(send_frame(agent, frame.text("10.0.0.7", 9).text(path.data(), path.size())));
}

struct Rejoin {
  regrow_membership member = REGROW_MEMBERSHIP_INIT;
  std::atomic<int> answer{-1};
  std::thread thread;
  Rejoin(Client& client, int64_t step, bool intact, int timeout_ms = 15'000)
      : thread([this, &client, step, intact, timeout_ms] {
          answer = client.rejoin(step, intact, &member, timeout_ms);
        }) {}
  ~Rejoin() {
    if (thread.joinable()) thread.join();
  }
  int wait() {
    thread.join();
    return answer;
  }
};

struct Calls {
  std::atomic<uint64_t> newest{0};
  std::atomic<int> count{0};
  static void take(uint64_t generation, void* self) {
    static_cast<Calls*>(self)->newest = generation;
    ++static_cast<Calls*>(self)->count;
  }
};

TEST_CASE("the layout of regrow_membership is what programs were compiled with") {
  static_assert(offsetof(regrow_membership, generation) == 8);
  static_assert(offsetof(regrow_membership, source_step) == 32);
  static_assert(offsetof(regrow_membership, resume_path) == 56);
  static_assert(sizeof(regrow_membership) == 64);
  Client client;
  regrow_membership small = REGROW_MEMBERSHIP_INIT;
  small.size = 40;
  CHECK(client.rejoin(1, true, &small, 0) == -EINVAL);
}

TEST_CASE("without a supervisor, and before any fault, rejoin() tells what the environment says") {
  Variables variables{{"RANK", "2"},
                      {"WORLD_SIZE", "4"},
                      {"MASTER_ADDR", "10.0.0.1"},
                      {"MASTER_PORT", "29400"},
                      {"REGROW_RESUME_STEP", "20"},
                      {"REGROW_RESUME_PATH", "/c/step_20"}};
  auto check = [](Client& client) {
    regrow_membership member = REGROW_MEMBERSHIP_INIT;
    auto start = steady_clock::now();
    CHECK(client.rejoin(-1, false, &member, -1) == 1);
    CHECK(ms_since(start) < 5000);
    CHECK(member.rank == 2);
    CHECK(member.world_size == 4);
    CHECK(member.source == -1);
    CHECK(member.resume_step == 20);
    CHECK(member.master_port == 29400);
    CHECK(std::string(member.master_address) == "10.0.0.1");
    CHECK(std::string(member.resume_path) == "/c/step_20");
  };
  {
    Environment environment(variables);
    Client client;
    check(client);
    CHECK(client.on_regroup(&Calls::take, nullptr) == 0);
  }
  Fixture fixture(variables);
  check(fixture.client);
}

TEST_CASE("a new generation is told to the callback, once, while nobody calls the library") {
  Fixture fixture;
  Calls calls;
  REQUIRE(fixture.client.on_regroup(&Calls::take, &calls) == 1);
  Fd agent = fixture.accept();
  std::vector<double> ms;
  for (int64_t generation = 4; generation < 24; ++generation) {
    auto start = steady_clock::now();
    regroup(agent, generation);
    regroup(agent, generation);
    REQUIRE(eventually([&] { return calls.newest == static_cast<uint64_t>(generation); }));
    ms.push_back(ms_since(start));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CHECK(calls.count == 20);
  std::sort(ms.begin(), ms.end());
  CHECK(ms[ms.size() / 2] < 50);
  CHECK(fixture.client.on_regroup(nullptr, nullptr) == 1);
  regroup(agent, 99);
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  CHECK(calls.count == 20);
}

TEST_CASE("rejoin() says step and state, and waits for go") {
  Fixture fixture;
  CHECK(fixture.client.generation() == 3);
  Fd agent = fixture.accept();
  regroup(agent, 4);
  Rejoin rejoin(fixture.client, 41, true);
  auto join = next_of(agent, Kind::join);
  REQUIRE(join);
  FrameReader said = join->frame();
  CHECK(said.number() == 4);
  CHECK(said.number() == 41);
  CHECK(said.number() == 1);
  go(agent, 3, 0);  // of one that is over
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK(rejoin.answer == -1);
  go(agent, 4, 2, "/c/" + std::string(4000, 'x'));
  REQUIRE(rejoin.wait() == 1);
  CHECK(rejoin.member.generation == 4);
  CHECK(rejoin.member.world_size == 4);
  CHECK(rejoin.member.source == 2);
  CHECK(rejoin.member.source_step == 41);
  CHECK(rejoin.member.resume_step == 20);
  CHECK(rejoin.member.master_port == 29500);
  CHECK(std::string(rejoin.member.master_address) == "10.0.0.7");
  CHECK(strlen(rejoin.member.resume_path) == 4003);
  CHECK(fixture.client.generation() == 4);
}

TEST_CASE("another loss while it waits: the next generation is joined") {
  Fixture fixture;
  fixture.client.generation();
  Fd agent = fixture.accept();
  regroup(agent, 4);
  Rejoin rejoin(fixture.client, 7, false);
  REQUIRE(next_of(agent, Kind::join));
  regroup(agent, 5);
  auto again = next_of(agent, Kind::join);
  REQUIRE(again);
  CHECK(again->first_number() == 5);
  go(agent, 4, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK(rejoin.answer == -1);
  go(agent, 5, -1);
  REQUIRE(rejoin.wait() == 1);
  CHECK(rejoin.member.generation == 5);
  CHECK(rejoin.member.source == -1);
}

TEST_CASE("the agent dies while it waits: the next one is told, too") {
  Fixture fixture;
  fixture.client.generation();
  Fd agent = fixture.accept();
  regroup(agent, 4);
  Rejoin rejoin(fixture.client, 41, true);
  REQUIRE(next_of(agent, Kind::join));
  agent = Fd();
  Fd next = fixture.accept();
  auto join = next_of(next, Kind::join);
  REQUIRE(join);
  CHECK(join->first_number() == 4);
  go(next, 4, 0);
  CHECK(rejoin.wait() == 1);
}

TEST_CASE("one that was started to join waits for go; a time-out is a time-out") {
  Fixture fixture(Variables{{"REGROW_JOIN", "1"}});
  auto start = steady_clock::now();
  regrow_membership member = REGROW_MEMBERSHIP_INIT;
  CHECK(fixture.client.rejoin(-1, false, &member, 100) == 0);
  CHECK(ms_since(start) > 90);  // its clock counts whole milliseconds
  Fd agent = fixture.accept();
  REQUIRE(next_of(agent, Kind::join));  // of the attempt that was given up
  Rejoin rejoin(fixture.client, -1, false);
  auto join = next_of(agent, Kind::join);
  REQUIRE(join);
  CHECK(join->first_number() == 3);
  go(agent, 3, 1);
  CHECK(rejoin.wait() == 1);
}

TEST_CASE("rubbish for a go is not a go") {
  Fixture fixture(Variables{{"REGROW_JOIN", "1"}});
  fixture.client.generation();
  Fd agent = fixture.accept();
  Rejoin rejoin(fixture.client, -1, false);
  REQUIRE(next_of(agent, Kind::join));
  FrameWriter cut(Kind::go), endless(Kind::go);
  send_frame(agent, cut.number(3).number(4));
  for (int i = 0; i < 6; ++i) endless.number(3);
  std::string text(3000, 'x');  // no zero byte ends the address
  send_frame(agent, endless.text(text.data(), text.size()));
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  CHECK(rejoin.answer == -1);
  go(agent, 3, 1);
  CHECK(rejoin.wait() == 1);
}

TEST_CASE("a child of a rank is silent, and has no thread") {
  Fixture fixture;
  Calls calls;
  REQUIRE(fixture.client.on_regroup(&Calls::take, &calls) == 1);
  Fd agent = fixture.accept();
  pid_t pid = fork();
  if (pid == 0) {
    regrow_membership member = REGROW_MEMBERSHIP_INIT;
    fixture.client.after_fork_in_child();
    _exit(fixture.client.rejoin(1, true, &member, -1) == 1 ? 0 : 1);
  }
  int status = 1;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
  for (const Packet& packet : receive_all(agent)) CHECK(packet.kind() == Kind::hello);
}

TEST_CASE("checkpoint_saved() tells step and path") {
  Fixture fixture;
  CHECK(fixture.client.saved(20, "/c/step_20") == 0);
  CHECK(fixture.client.saved(-1, "/c") == -EINVAL);
  CHECK(fixture.client.saved(20, "") == -EINVAL);
  Fd agent = fixture.accept();
  auto saved = next_of(agent, Kind::saved);
  REQUIRE(saved);
  CHECK(saved->first_number() == 20);
  CHECK(saved->bytes.substr(16) == "/c/step_20");
}

// --- with the agent's end
// --------------------------------------------------------------------------

struct AgentEnd {
  TemporaryDirectory directory;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  RankSocketSettings settings;
  std::vector<JoinReport> joins;
  std::unique_ptr<RankSocket> socket;

  AgentEnd() {
    settings.directory = directory.path();
    settings.name = "rank/7/0 incarnation 1";
    settings.token = kToken;
    settings.uid = geteuid();
    settings.gid = getegid();
    settings.generation = 3;
    settings.on_join = [this](Generation generation, int64_t step, bool intact) {
      joins.push_back({{}, generation, step, intact});
    };
    start();
  }
  void start() {
    socket = nullptr;
    socket = std::make_unique<RankSocket>(io.unixEventPort, io.provider->getTimer(), settings);
  }
  bool until(const std::function<bool()>& done) {
    return eventually([&] {
      io.provider->getTimer().afterDelay(2 * kj::MILLISECONDS).wait(io.waitScope);
      return done();
    });
  }
  static GoCommand command(uint32_t generation) {
    GoCommand go;
    go.generation = {generation};
    go.world_size = 4;
    go.master_address = "127.0.0.1";
    go.master_port = 29500;
    go.source = 1;
    go.source_step = 41;
    return go;
  }
};

TEST_CASE("agent and library: called, joined, gone; what was missed is said again") {
  AgentEnd agent;
  Environment environment(supervised(RankSocket::path_in(agent.settings.directory)));
  Client client;
  Calls calls;
  REQUIRE(client.on_regroup(&Calls::take, &calls) == 1);
  REQUIRE(agent.until([&] { return agent.socket->connections() == 1; }));
  agent.socket->regroup({4}, "rank 3 was lost");
  REQUIRE(agent.until([&] { return calls.newest == 4; }));
  Rejoin rejoin(client, 41, true);
  REQUIRE(agent.until([&] { return agent.joins.size() == 1; }));
  CHECK(agent.joins[0].generation == Generation{4});
  CHECK(agent.joins[0].step == 41);
  CHECK(agent.joins[0].intact);

  agent.socket->regroup({4}, "rank 3 was lost");  // the controller asks again
  CHECK(agent.joins.size() == 2);
  agent.socket->go(AgentEnd::command(3));  // of another generation
  agent.socket->regroup({5}, "and rank 2");
  REQUIRE(agent.until([&] { return agent.joins.size() == 3; }));
  CHECK(agent.joins[2].generation == Generation{5});

  agent.start();  // another agent, which knows nothing
  REQUIRE(agent.until([&] { return agent.joins.size() == 4; }));
  CHECK(agent.joins[3].generation == Generation{5});
  agent.socket->go(AgentEnd::command(5));
  REQUIRE(agent.until([&] { return rejoin.answer == 1; }));
  CHECK(rejoin.member.generation == 5);
  CHECK(rejoin.member.source == 1);
  agent.socket->regroup({4}, "old news");
  CHECK(agent.joins.size() == 4);
}

TEST_CASE("a rank that joins what is over is called further") {
  AgentEnd agent;
  Environment environment([&] {
    Variables variables = supervised(RankSocket::path_in(agent.settings.directory));
    variables["REGROW_JOIN"] = "1";
    return variables;
  }());
  agent.socket->regroup({6}, "while it was starting");
  Client client;
  Rejoin rejoin(client, -1, false);
  REQUIRE(agent.until([&] { return !agent.joins.empty(); }));
  CHECK(agent.joins.back().generation == Generation{6});
  agent.socket->go(AgentEnd::command(6));
  CHECK(agent.until([&] { return rejoin.answer == 1; }));
}

}  // namespace
}  // namespace regrow::testing
