// The agent over a real host link to a stand-in for the controller: F-1, F-2, acknowledgement,
// devices.
#include <unistd.h>

#include "actors/agent/agent_session.h"
#include "actors/agent/leftovers.h"
#include "actors/log.h"
#include "tests/agent/support.h"
#include "tests/catch.h"
#include "tests/transport/support.h"

namespace regrow {
namespace {

using test::eventually;
using test::RecordingHandler;
using testing::TemporaryDirectory;
using testing::write_file;

// A controller that records, on a socket; comes and goes.
struct StandIn {
  StandIn(const std::string& socket, Epoch epoch, const std::string& cluster_id = "cluster-1") {
    handler.epoch = epoch;
    handler.cluster_id = cluster_id;
    ListenOptions listen;
    listen.address = *parse_address("unix:" + socket);
    listen.roles = test::own_rules();
    REQUIRE(rpc.listen(std::move(listen)).ok());
  }
  void send(AgentCommand command) {
    REQUIRE(eventually([&] { return handler.last_session().value != 0; }));
    link.send(handler.last_session(), {std::move(command)});
  }
  AgentHello hello() {
    REQUIRE(eventually([&] { return handler.last_session().value != 0; }));
    return handler.seen.with([](auto& seen) { return seen.hellos.back(); });
  }
  // Waits for a report of that incarnation in that state.
  RankReport wait_for(const IncarnationKey& key, ProcessState state) {
    RankReport found;
    bool came = eventually([&] {
      return handler.seen.with([&](auto& seen) {
        for (const HostReports& reports : seen.reports) {
          for (const RankReport& rank : reports.ranks) {
            if (rank.key == key && rank.state == state) found = rank;
          }
        }
        return found.key == key;
      });
    });
    CHECK(came);
    return found;
  }

  KjLoop loop{"stand-in"};
  RecordingHandler handler;
  HostLinkServer link{loop, handler, {}};
  RpcServer rpc{loop, &link, nullptr};
};

// The agent, as run_agent puts it together.
struct RunningAgent {
  explicit RunningAgent(const AgentOptions& options)
      : state(std::move(*HostIdentity::open(options.state_dir, options.boot_id_file))) {
    loop.run_sync([&] { session = std::make_unique<AgentSession>(loop, state, options); });
    HostLinkClientOptions client_options;
    client_options.address = *parse_address(options.controller);
    client = std::make_unique<HostLinkClient>(loop, *session, client_options);
    loop.run_sync([&] { session->start(*client); });
  }
  ~RunningAgent() {
    loop.run_sync([&] { session->stop(); });
    client.reset();
    loop.run_sync([&] { session.reset(); });
  }

  KjLoop loop{"test-agent"};
  HostIdentity state;
  std::unique_ptr<AgentSession> session;
  std::unique_ptr<HostLinkClient> client;
};

struct Host {
  Host() {
    static const bool quiet = (open_log("test", LogLevel::error), true);
    static_cast<void>(quiet);
    options.controller = "unix:" + directory.path() + "/c.sock";
    options.state_dir = directory.path() + "/state";
    options.run_dir = directory.path() + "/run";
    options.name = "h1";
    options.address = "127.0.0.1";
    options.shim = testing::shim_path();
    options.sysroot = directory.path() + "/sysroot";
    options.temporary_root = directory.path();
    options.allowed_users = {std::to_string(geteuid())};
    options.boot_id_file = directory.path() + "/boot";
    write_file(options.boot_id_file, "boot-1\n");
    write_file(options.sysroot + "/devices/sim0", "kind=sim\nuid=SIM-0\n");
    write_file(options.sysroot + "/devices/sim1", "kind=sim\nuid=SIM-1\n");
  }
  std::string socket() const { return directory.path() + "/c.sock"; }
  static Spawn shell(const std::string& script, uint32_t rank, uint32_t incarnation = 1) {
    Spawn spawn;
    spawn.command.key = {{7}, {rank}, {incarnation}};
    spawn.spec.command = {"/bin/sh", "-c", script};
    spawn.spec.working_directory = "/";
    spawn.spec.uid = geteuid();
    return spawn;
  }
  static StopCommand kill_of(const Spawn& spawn) {
    StopCommand stop;
    stop.key = spawn.command.key;
    stop.force = true;
    return stop;
  }

  TemporaryDirectory directory;
  AgentOptions options;
};

TEST_CASE("an agent says who it is, runs what it is told and reports until acknowledged") {
  Host host;
  StandIn controller(host.socket(), {1, 11});
  RunningAgent agent(host.options);
  AgentHello hello = controller.hello();
  CHECK(hello.name.value == "h1");
  CHECK(hello.uid.size() == 32);
  CHECK(hello.boot_id == "boot-1");
  REQUIRE(hello.devices.size() == 2);
  CHECK(hello.devices[0].uid == "SIM-0");
  CHECK(hello.ranks.empty());

  Spawn spawn = Host::shell("exit 3", 0);
  controller.send(spawn);
  controller.wait_for(spawn.command.key, ProcessState::running);
  RankReport end = controller.wait_for(spawn.command.key, ProcessState::exited);
  CHECK(end.exit_code == 3);
  CHECK(agent.loop.run_sync([&] { return agent.session->make_hello().ranks.size(); }) == 1);
  controller.send(Acknowledge{{spawn.command.key}});
  CHECK(eventually([&] {
    return agent.loop.run_sync([&] { return agent.session->make_hello().ranks.empty(); });
  }));
}

TEST_CASE("the agent's end and return touch no rank; identity and epoch stay") {
  Host host;
  StandIn controller(host.socket(), {4, 44});
  Spawn spawn = Host::shell("sleep 1000", 1);
  RankReport running;
  std::string uid;
  {
    RunningAgent agent(host.options);
    uid = controller.hello().uid;
    controller.send(spawn);
    running = controller.wait_for(spawn.command.key, ProcessState::running);
    CHECK_FALSE(HostIdentity::open(host.options.state_dir, host.options.boot_id_file).ok());
  }
  CHECK(read_process_stat(running.pid).start_time == running.start_time);
  RunningAgent again(host.options);
  REQUIRE(eventually(
      [&] { return controller.handler.seen.with([](auto& s) { return s.hellos.size(); }) == 2; }));
  AgentHello hello = controller.hello();
  CHECK(hello.uid == uid);
  CHECK(hello.seen_epoch == Epoch{4, 44});
  REQUIRE(hello.ranks.size() == 1);
  CHECK(hello.ranks[0].pid == running.pid);
  CHECK(hello.ranks[0].state == ProcessState::running);

  // The controller does not want it any more.
  controller.send(InventoryAnswer{{}, {spawn.command.key}});
  RankReport end = controller.wait_for(spawn.command.key, ProcessState::exited);
  CHECK(end.ended_by_us);
  CHECK(end.signal == 9);
}

TEST_CASE("F-1: commands of an older epoch, or of a twin of the same number, are refused") {
  Host host;
  Spawn spawn = Host::shell("sleep 1000", 0);
  {
    StandIn controller(host.socket(), {5, 50});
    RunningAgent agent(host.options);
    controller.send(spawn);
    controller.wait_for(spawn.command.key, ProcessState::running);
  }
  for (Epoch old : {Epoch{4, 40}, Epoch{5, 51}}) {
    StandIn controller(host.socket(), old);
    RunningAgent agent(host.options);
    controller.send(Host::kill_of(spawn));
    REQUIRE(eventually(
        [&] { return controller.handler.count(&RecordingHandler::Seen::disconnects) > 0; }));
    CHECK(controller.hello().seen_epoch == Epoch{5, 50});
    CHECK(controller.hello().ranks.at(0).state == ProcessState::running);
  }
  StandIn controller(host.socket(), {6, 60});
  RunningAgent agent(host.options);
  controller.send(Host::kill_of(spawn));
  controller.wait_for(spawn.command.key, ProcessState::exited);
}

TEST_CASE("F-1: a controller of another cluster gets no report and is not obeyed, at any epoch") {
  Host host;
  Spawn spawn = Host::shell("sleep 1000", 0);
  {
    StandIn controller(host.socket(), {5, 50});
    RunningAgent agent(host.options);
    CHECK(controller.hello().cluster_id.empty());
    controller.send(spawn);
    controller.wait_for(spawn.command.key, ProcessState::running);
  }
  CHECK(testing::read_text(host.options.state_dir + "/cluster") == "cluster-1\n");
  {
    StandIn controller(host.socket(), {9, 90}, "cluster-2");
    RunningAgent agent(host.options);
    CHECK(controller.hello().cluster_id == "cluster-1");
    controller.send(Host::kill_of(spawn));
    HostReports reports;
    reports.ranks = {test::rank_report(7, 5)};
    agent.loop.run_sync([&] { agent.client->report(reports); });
    REQUIRE(eventually(
        [&] { return controller.handler.count(&RecordingHandler::Seen::disconnects) > 1; }));
    CHECK(controller.handler.seen.with([](auto& s) { return s.reports.empty(); }));
    std::string why = agent.loop.run_sync([&] { return agent.session->refuse("cluster-2"); });
    for (const std::string& words :
         {std::string("belongs to cluster cluster-1"), host.options.state_dir + "/cluster",
          std::string("is of cluster cluster-2"), "remove " + host.options.state_dir,
          host.options.run_dir}) {
      INFO(words);
      CHECK(why.find(words) != std::string::npos);
    }
  }
  CHECK(testing::read_text(host.options.state_dir + "/cluster") == "cluster-1\n");
  StandIn controller(host.socket(), {6, 60});
  RunningAgent agent(host.options);
  CHECK(controller.hello().seen_epoch == Epoch{5, 50});
  controller.send(Host::kill_of(spawn));
  controller.wait_for(spawn.command.key, ProcessState::exited);
}

TEST_CASE("a prepare is answered, a stop of what never was too") {
  Host host;
  StandIn controller(host.socket(), {1, 11});
  RunningAgent agent(host.options);
  PrepareCommand prepare;
  prepare.job = {9};
  prepare.generation = {2};
  prepare.want_port = true;
  controller.send(prepare);
  CHECK(eventually([&] {
    return controller.handler.seen.with([](auto& seen) {
      for (const auto& reports : seen.reports) {
        if (!reports.prepares.empty()) return reports.prepares[0].port >= 20000;
      }
      return false;
    });
  }));
  Spawn never = Host::shell("true", 5);
  controller.send(Host::kill_of(never));
  controller.wait_for(never.command.key, ProcessState::never_started);
}

TEST_CASE("a simulated device's fault is reported, by command and by hand, and so is its healing") {
  Host host;
  StandIn controller(host.socket(), {1, 11});
  RunningAgent agent(host.options);
  auto seen_fault = [&](const std::string& name) -> std::string {
    return controller.handler.seen.with([&](auto& seen) {
      std::string fault = "(none reported)";
      for (const auto& reports : seen.reports) {
        for (const auto& device : reports.devices) {
          if (device.name.value == name) fault = device.healthy ? "healthy" : device.fault;
        }
      }
      return fault;
    });
  };
  controller.send(SetDeviceFault{{"sim1"}, "double-bit error"});
  CHECK(eventually([&] { return seen_fault("sim1") == "double-bit error"; }));
  controller.send(SetDeviceFault{{"sim1"}, ""});
  CHECK(eventually([&] { return seen_fault("sim1") == "healthy"; }));
  unlink((host.options.sysroot + "/devices/sim0").c_str());
  CHECK(eventually([&] { return seen_fault("sim0") == "the device is not there any more"; }));
}

TEST_CASE("with end_ranks the agent takes its ranks along") {
  Host host;
  StandIn controller(host.socket(), {1, 11});
  RunningAgent agent(host.options);
  Spawn willing = Host::shell("trap 'exit 4' TERM; while :; do sleep 0.02; done", 0);
  Spawn stubborn = Host::shell("trap '' TERM; while :; do sleep 0.02; done", 1);
  controller.send(willing);
  controller.send(stubborn);
  controller.wait_for(willing.command.key, ProcessState::running);
  controller.wait_for(stubborn.command.key, ProcessState::running);
  usleep(200'000);  // for the traps
  std::promise<void> done;
  agent.loop.post([&] {
    agent.loop.detach(agent.session->end_ranks(Duration::ms(500)).then([&] { done.set_value(); }));
  });
  REQUIRE(done.get_future().wait_for(std::chrono::seconds(5)) == std::future_status::ready);
  CHECK(controller.wait_for(willing.command.key, ProcessState::exited).exit_code == 4);
  CHECK(controller.wait_for(stubborn.command.key, ProcessState::exited).forced);
}

}  // namespace
}  // namespace regrow
