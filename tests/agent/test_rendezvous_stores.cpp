// Stores of `rendezvous: store`. The interpreter is a script that says what a store says, so that
// no PyTorch is needed; tests/system/test_rendezvous.py runs the real one.
#include <signal.h>
#include <sys/stat.h>

#include "actors/agent/rendezvous_stores.h"
#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::alive;
using testing::World;
using testing::write_file;

struct Stores {
  World world;
  std::unique_ptr<RendezvousStores> stores;

  Stores() { restart(); }
  ~Stores() {
    stores->stop_all();
    world.wait_until([&] { return stores->alive() == 0 && stores->idle(); });
  }

  void restart() {
    stores.reset();
    stores = std::make_unique<RendezvousStores>(world.io.unixEventPort,
                                                world.io.provider->getTimer(), world.options);
  }

  PrepareCommand command(const std::string& program, uint64_t job = 7) {
    std::string path = world.directory.path() + "/interpreter";
    write_file(path, "#!/bin/sh\n" + program);
    chmod(path.c_str(), 0755);
    PrepareCommand command;
    command.job = {job};
    command.want_store = true;
    command.interpreter = path;
    return command;
  }

  // Once its shim has told.
  uint64_t pid(uint64_t job = 7) {
    world.wait_until([&] { return stores->pid({job}) != 0; });
    return stores->pid({job});
  }

  StoreAnswer ensure(const PrepareCommand& command) {
    return stores->ensure(command).wait(world.io.waitScope);
  }
};

constexpr const char* kListens =
    "echo listening on $$\nexec sleep 1000\n";  // every start has a port of its own

RankReport rank_of(uint64_t job) {
  RankReport report;
  report.key = {{job}, {3}, {1}};
  report.state = ProcessState::running;
  return report;
}

TEST_CASE("store: one process serves every generation of a job, each job has its own") {
  Stores s;
  StoreAnswer first = s.ensure(s.command(kListens));
  CHECK(first.trouble == "");
  REQUIRE(first.port != 0);
  CHECK(s.pid() == first.port);
  CHECK(s.ensure(s.command(kListens)).port == first.port);
  StoreAnswer other = s.ensure(s.command(kListens, 8));
  CHECK(other.port != 0);
  CHECK(other.port != first.port);
  CHECK(s.stores->alive() == 2);
}

TEST_CASE("store: the death of an agent does not touch it (F-2)") {
  Stores s;
  uint32_t port = s.ensure(s.command(kListens)).port;
  uint64_t pid = s.pid();
  s.restart();
  CHECK(s.pid() == pid);
  CHECK(s.ensure(s.command(kListens)).port == port);
}

TEST_CASE("store: one that died is replaced when ranks meet again") {
  Stores s;
  uint32_t port = s.ensure(s.command(kListens)).port;
  uint64_t pid = s.pid();
  kill(static_cast<pid_t>(pid), SIGKILL);
  REQUIRE(s.world.wait_until([&] { return s.stores->alive() == 0; }));
  StoreAnswer again = s.ensure(s.command(kListens));
  CHECK(again.port != 0);
  CHECK(again.port != port);
}

TEST_CASE("store: it ends when its job has had no rank here for a while, and not before") {
  Stores s;
  Duration linger = Duration::seconds(1);
  s.ensure(s.command(kListens));
  uint64_t pid = s.pid();
  s.world.pass(1.1);
  s.stores->keep({rank_of(7)}, linger);
  s.world.pass(0.3);
  CHECK(alive(pid));
  s.world.pass(1.1);
  s.stores->keep({rank_of(8)}, linger);
  CHECK(s.world.wait_until([&] { return !alive(pid) && s.stores->alive() == 0; }));
  CHECK(s.stores->pid({7}) == 0);
}

TEST_CASE("store: one that cannot run says why, and does not run in circles") {
  Stores s;
  StoreAnswer none =
      s.ensure(s.command("echo 'ModuleNotFoundError: No module named torch' >&2\nexit 1\n"));
  CHECK(none.port == 0);
  CHECK(none.trouble == "ModuleNotFoundError: No module named torch");
  s.world.pass(0.2);
  CHECK(s.stores->alive() == 0);
  PrepareCommand missing = s.command(kListens);
  missing.interpreter = "/no/such/python";
  StoreAnswer no_program = s.ensure(missing);
  CHECK(no_program.port == 0);
  CHECK(no_program.trouble.find("/no/such/python") != std::string::npos);
}

}  // namespace
}  // namespace regrow
