// The host link over real sockets.
#include "tests/transport/support.h"

using namespace regrow;
using namespace regrow::test;

namespace {

// An agent's process: its own loop and link.
struct TestAgent {
  explicit TestAgent(HostLinkClientOptions options) : loop("test-agent") {
    link = std::make_unique<HostLinkClient>(loop, agent, std::move(options));
  }
  void report(RankReport r) {
    loop.post([this, r] { link->report({.ranks = {r}}); });
  }
  size_t unacknowledged() {
    return loop.run_sync([this] { return link->unacknowledged(); });
  }

  RecordingAgent agent;
  KjLoop loop;
  std::unique_ptr<HostLinkClient> link;
};

HostLinkClientOptions fast(const Address& address) {
  HostLinkClientOptions options;
  options.address = address;
  options.first_retry = Duration::ms(5);
  options.longest_retry = Duration::ms(50);
  return options;
}

std::vector<uint32_t> ranks_of(RecordingHandler& handler) {
  return handler.seen.with([](auto& s) {
    std::vector<uint32_t> ranks;
    for (auto& reports : s.reports) {
      for (auto& r : reports.ranks) ranks.push_back(r.key.rank.value);
    }
    return ranks;
  });
}

}  // namespace

TEST_CASE("an agent says hello, gets commands in order, and its log is read") {
  TempDir dir;
  TestController controller;
  auto address = controller.listen_unix(dir);
  TestAgent agent(fast(address));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  auto session = controller.handler.last_session();
  controller.handler.seen.with([&](auto& s) {
    CHECK(s.hellos[0] == agent.agent.hello);
    CHECK(s.peers[0].who == "uid:" + std::to_string(getuid()));
    CHECK(s.peers[0].role == Role::owner);
  });

  constexpr unsigned kCommands = 3000;
  for (unsigned i = 0; i < kCommands; i += 3) {
    StopCommand stop;
    stop.key.rank = {i + 2};
    controller.link.send(session, {InventoryAnswer{{{{1}, {i}, {1}}}, {}},
                                   SetDeviceFault{{"gpu" + std::to_string(i + 1)}, "ecc"}, stop});
  }
  REQUIRE(eventually([&] {
    return agent.agent.seen.with([](auto& s) { return s.commands.size(); }) == kCommands;
  }));
  agent.agent.seen.with([&](auto& s) {
    CHECK(s.epochs.back() == Epoch{3, 77});
    CHECK(s.batches < kCommands / 4);  // many commands per call
    bool ordered = true;
    for (unsigned i = 0; i < kCommands; i += 3) {
      ordered = ordered && std::get<InventoryAnswer>(s.commands[i]).keep[0].rank.value == i &&
                std::get<SetDeviceFault>(s.commands[i + 1]).device.value ==
                    "gpu" + std::to_string(i + 1) &&
                std::get<StopCommand>(s.commands[i + 2]).key.rank.value == i + 2;
    }
    CHECK(ordered);
  });

  std::promise<std::pair<std::string, LogChunk>> read;
  controller.link.read_log(session, {.job = {1}, .rank = {0}, .stream = "stderr"},
                           [&](std::string error, LogChunk chunk) {
                             read.set_value({error, chunk});
                           });
  auto [error, chunk] = read.get_future().get();
  CHECK(error.empty());
  CHECK(chunk.data == "line of stderr" + std::string("\0\xff\n", 3));
  CHECK(chunk.next_offset == 42);

  std::promise<std::string> no_session;
  controller.link.read_log({999}, {}, [&](std::string e, LogChunk) { no_session.set_value(e); });
  CHECK(no_session.get_future().get() == "the host's agent is not connected");
}

TEST_CASE("commands sent from inside agent_connected arrive after on_connected") {
  struct Eager : RecordingHandler {
    HostLinkServer* link = nullptr;
    AttachAnswer agent_connected(SessionId id, const PeerIdentity& peer,
                                 AgentHello hello) override {
      link->send(id, {InventoryAnswer{}});
      return RecordingHandler::agent_connected(id, peer, std::move(hello));
    }
  };
  TempDir dir;
  KjLoop loop("test-kj");
  Eager handler;
  HostLinkServer link(loop, handler);
  handler.link = &link;
  RpcServer rpc(loop, &link, nullptr);
  auto address = rpc.listen({.address = dir.socket(), .roles = own_rules()});
  REQUIRE(address);
  TestAgent agent(fast(*address));
  REQUIRE(eventually(
      [&] { return agent.agent.seen.with([](auto& s) { return s.commands.size(); }) == 1; }));
  CHECK(agent.agent.connects() == 1);
}

TEST_CASE("a report returns only when it is acknowledged, and is sent again after a reconnect") {
  TempDir dir;
  auto controller = std::make_unique<TestController>();
  auto address = controller->listen_unix(dir);
  TestAgent agent(fast(address));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));

  agent.report(rank_report(1, 0));
  REQUIRE(eventually([&] { return agent.unacknowledged() == 0; }));

  controller->handler.hold = true;
  agent.report(rank_report(1, 1));
  agent.report(rank_report(1, 2));
  REQUIRE(eventually([&] { return ranks_of(controller->handler).size() == 3; }));
  CHECK(agent.unacknowledged() == 2);

  SECTION("the controller goes away") {
    controller.reset();  // not acknowledged: not durable
    REQUIRE(eventually(
        [&] { return agent.agent.seen.with([](auto& s) { return s.disconnected.size(); }) == 1; }));
    agent.report(rank_report(1, 3));
    controller = std::make_unique<TestController>();
    controller->listen_unix(dir);
    REQUIRE(eventually([&] { return agent.unacknowledged() == 0; }));
    CHECK(ranks_of(controller->handler) == std::vector<uint32_t>{1, 2, 3});
  }
  SECTION("the acknowledgement comes late, from another thread") {
    std::thread later([&] {
      controller->handler.seen.with([](auto& s) {
        for (auto& ack : s.held) ack();
      });
    });
    later.join();
    REQUIRE(eventually([&] { return agent.unacknowledged() == 0; }));
    CHECK(agent.agent.connects() == 1);
  }
  SECTION("the acknowledgement is dropped: the agent reconnects and repeats") {
    controller->handler.hold = false;
    controller->handler.seen.with([](auto& s) { s.held.clear(); });
    REQUIRE(eventually([&] { return agent.unacknowledged() == 0; }));
    CHECK(agent.agent.connects() == 2);
    CHECK(ranks_of(controller->handler) == std::vector<uint32_t>{0, 1, 2, 1, 2});
  }
}

TEST_CASE("while there is no controller only the newest report of an incarnation is kept") {
  TempDir dir;
  TestAgent agent(fast(dir.socket()));
  for (int i = 0; i < 100; ++i) agent.report(rank_report(1, 5, ProcessState::running));
  agent.report(rank_report(1, 6));
  agent.report(rank_report(1, 5, ProcessState::exited));
  CHECK(agent.unacknowledged() == 2);
  TestController controller;
  controller.listen_unix(dir);
  REQUIRE(eventually([&] { return agent.unacknowledged() == 0; }));
  controller.handler.seen.with([](auto& s) {
    REQUIRE(s.reports.size() == 1);
    CHECK(s.reports[0].ranks[0].state == ProcessState::exited);
    CHECK(s.reports[0].ranks[1].key.rank.value == 6);
  });
}

TEST_CASE("thousands of reports arrive once each and in order") {
  TempDir dir;
  TestController controller;
  TestAgent agent(fast(controller.listen_unix(dir)));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  constexpr uint32_t kReports = 5000;
  for (uint32_t i = 0; i < kReports; ++i) agent.report(rank_report(1, i));
  REQUIRE(eventually([&] {
    return agent.unacknowledged() == 0 && ranks_of(controller.handler).size() == kReports;
  }));
  auto ranks = ranks_of(controller.handler);
  CHECK(std::is_sorted(ranks.begin(), ranks.end()));
  CHECK(controller.handler.seen.with([](auto& s) { return s.reports.size(); }) < kReports / 4);
}

TEST_CASE("heartbeats carry progress; progress may also be sent between them") {
  TempDir dir;
  TestController controller({.heartbeat_ms = 20});
  TestAgent agent(fast(dir.socket()));
  agent.loop.run_sync([&] {
    ProgressReport p;
    p.key.job = {9};
    p.step = 100;
    agent.agent.current_progress = {p};
  });
  controller.listen_unix(dir);
  REQUIRE(eventually(
      [&] { return controller.handler.count(&RecordingHandler::Seen::heartbeats) >= 5; }));
  agent.loop.run_sync([&] {
    ProgressReport p;
    p.key.job = {10};
    agent.link->send_progress({p});
  });
  CHECK(eventually([&] {
    return controller.handler.seen.with([](auto& s) {
      return std::any_of(s.progress.begin(), s.progress.end(),
                         [](auto& p) { return p.key.job.value == 10; }) &&
             std::any_of(s.progress.begin(), s.progress.end(),
                         [](auto& p) { return p.step == 100; });
    });
  }));
  CHECK(agent.loop.run_sync([&] { return agent.link->last_answered_us(); }) > 0);
}

TEST_CASE("a controller that is stopped but whose connection lives is noticed by silence") {
  TempDir dir;
  TestController controller({.heartbeat_ms = 50});
  auto options = fast(controller.listen_unix(dir));
  options.silence_limit = Duration::ms(600);
  options.connect_timeout = Duration::ms(500);
  TestAgent agent(options);
  REQUIRE(eventually(
      [&] { return controller.handler.count(&RecordingHandler::Seen::heartbeats) >= 2; }));

  std::promise<void> go_on;
  auto paused = go_on.get_future().share();
  controller.loop.post([paused] { paused.wait(); });
  REQUIRE(eventually(
      [&] { return agent.agent.seen.with([](auto& s) { return s.disconnected.size(); }) == 1; }));
  agent.agent.seen.with(
      [](auto& s) { CHECK(s.disconnected[0].find("answered no heartbeat") != std::string::npos); });
  // The kernel still accepts for the stopped controller; the hello gets no answer.
  REQUIRE(eventually(
      [&] { return agent.agent.seen.with([](auto& s) { return s.failed.size(); }) >= 1; }));
  agent.agent.seen.with(
      [](auto& s) { CHECK(s.failed[0] == "the controller did not answer the hello"); });
  go_on.set_value();
  REQUIRE(eventually([&] { return agent.agent.connects() == 2; }));
  CHECK(eventually(
      [&] { return controller.handler.count(&RecordingHandler::Seen::disconnects) >= 1; }));
}

TEST_CASE("an agent that was itself stopped does not blame the controller") {
  TempDir dir;
  TestController controller({.heartbeat_ms = 50});
  auto options = fast(controller.listen_unix(dir));
  options.silence_limit = Duration::ms(800);
  TestAgent agent(options);
  REQUIRE(eventually(
      [&] { return controller.handler.count(&RecordingHandler::Seen::heartbeats) >= 2; }));
  agent.loop.run_sync([] { std::this_thread::sleep_for(std::chrono::milliseconds(2500)); });
  auto before = controller.handler.count(&RecordingHandler::Seen::heartbeats);
  REQUIRE(eventually(
      [&] { return controller.handler.count(&RecordingHandler::Seen::heartbeats) > before + 3; }));
  CHECK(agent.agent.seen.with([](auto& s) { return s.disconnected.size(); }) == 0);
}

TEST_CASE("a cut link stays away for the time asked, then comes back") {
  TempDir dir;
  TestController controller;
  TestAgent agent(fast(controller.listen_unix(dir)));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  auto start = std::chrono::steady_clock::now();
  controller.link.send(controller.handler.last_session(),
                       {SetDeviceFault{{"gpu0"}, "x"}, CutLink{Duration::ms(400)}});
  REQUIRE(eventually(
      [&] { return controller.handler.count(&RecordingHandler::Seen::disconnects) == 1; }));
  REQUIRE(eventually([&] { return agent.agent.connects() == 2; }));
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::milliseconds(400));
  agent.agent.seen.with([](auto& s) {
    CHECK(s.disconnected[0] == "the link was cut on request for 400 ms");
    CHECK(s.commands.size() == 1);  // CutLink is the link's own business
  });
}

TEST_CASE("drop ends a session with the reason given") {
  TempDir dir;
  TestController controller;
  TestAgent agent(fast(controller.listen_unix(dir)));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  auto first = controller.handler.last_session();
  controller.link.drop(first, "a newer session of the same agent");
  REQUIRE(eventually([&] { return agent.agent.connects() == 2; }));
  controller.handler.seen.with([&](auto& s) {
    CHECK(s.reasons == std::vector<std::string>{"a newer session of the same agent"});
    CHECK(s.sessions[1].value > first.value);
    CHECK(s.log[0] == "connect 1 h1");
  });
  controller.link.drop(first, "again");              // gone already: nothing happens
  controller.link.send(first, {InventoryAnswer{}});  // nor here
  controller.loop.run_sync([] {});
}

TEST_CASE("an agent that fails to take commands is disconnected") {
  TempDir dir;
  TestController controller;
  TestAgent agent(fast(controller.listen_unix(dir)));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  agent.agent.fail_commands = true;
  controller.link.send(controller.handler.last_session(), {InventoryAnswer{}});
  REQUIRE(eventually([&] { return agent.agent.connects() == 2; }));
  agent.agent.seen.with([](auto& s) {
    CHECK(s.disconnected[0] == "the agent failed to take commands: no room for commands");
  });
}

TEST_CASE("a refused agent is told why and keeps asking slowly") {
  TempDir dir;
  TestController controller;
  controller.handler.refuse = "your epoch is newer; start with --recover-epoch";
  TestAgent agent(fast(controller.listen_unix(dir)));
  REQUIRE(eventually(
      [&] { return agent.agent.seen.with([](auto& s) { return s.refused.size(); }) == 1; }));
  agent.agent.seen.with([](auto& s) {
    CHECK(s.refused[0] == "your epoch is newer; start with --recover-epoch");
    CHECK(s.connected.empty());
  });
  CHECK(controller.handler.count(&RecordingHandler::Seen::disconnects) == 0);
}

TEST_CASE("an agent's end is a disconnect, and so is the controller's") {
  TempDir dir;
  auto controller = std::make_unique<TestController>();
  auto address = controller->listen_unix(dir);
  {
    TestAgent agent(fast(address));
    REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  }
  REQUIRE(eventually(
      [&] { return controller->handler.count(&RecordingHandler::Seen::disconnects) == 1; }));
  TestAgent agent(fast(address));
  REQUIRE(eventually([&] { return agent.agent.connects() == 1; }));
  controller.reset();
  CHECK(eventually(
      [&] { return agent.agent.seen.with([](auto& s) { return s.disconnected.size(); }) == 1; }));
  CHECK_FALSE(std::filesystem::exists(address.path));
}
