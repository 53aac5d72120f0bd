// How ranks end, and how that is told: scenarios 02, 05, 07, 08, 38.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <sstream>

#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::alive;
using testing::read_text;
using testing::World;
using testing::write_file;

// Is somebody holding the lock file that stands for a device?
bool locked(const std::string& path) {
  Fd fd(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  return flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

TEST_CASE("exit code, output and times of a rank are reported") {
  World world;
  auto key = world.spawn_shell("echo out; echo 'ValueError: bad data' >&2; exit 3");
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::exited);
  CHECK(end.exit_code == 3);
  CHECK(end.signal == 0);
  CHECK_FALSE(end.ended_by_us);
  CHECK(end.last_words == "ValueError: bad data\n");
  CHECK(end.error_line == "ValueError: bad data");
  CHECK(end.pid > 0);
  CHECK(end.start_time > 0);
  CHECK(end.started_us > 0);
  CHECK(end.leader_ended_us >= end.started_us);
  CHECK(end.group_gone_us >= end.leader_ended_us);
  CHECK(world.log(key) == "out\n");
  REQUIRE(world.reports.size() == 2);  // running, exited
  CHECK(world.reports[0].state == ProcessState::running);
  CHECK(world.reports[1] == end);
}

TEST_CASE("scenario 02: the leader alone is asked to stop and can save with its helpers alive") {
  World world;
  auto key = world.spawn_python(R"(
import os, signal, sys, time
children = []
for i in range(4):
    pid = os.fork()
    if pid == 0:
        time.sleep(1000)
    children.append(pid)
def save(*_):
    end = time.time() + 1
    while time.time() < end:
        for pid in children:
            if os.waitpid(pid, os.WNOHANG) != (0, 0): sys.exit(1)
        time.sleep(0.02)
    open('saved.ok', 'w').close()
    open('children', 'w').write(' '.join(map(str, children)))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print('ready', flush=True)
while True: time.sleep(1)
)");
  REQUIRE(world.wait_until([&] { return world.log(key) == "ready\n"; }));
  world.stop(key, 30);
  world.stop(key, 30);  // a repeat changes nothing
  RankReport end = world.wait_final(key);
  CHECK(end.exit_code == 0);
  CHECK(end.signal == 0);
  CHECK(end.ended_by_us);
  CHECK_FALSE(end.forced);
  CHECK(file_exists(world.directory.path() + "/saved.ok"));
  std::istringstream children(read_text(world.directory.path() + "/children"));
  for (uint64_t pid = 0; children >> pid;) CHECK_FALSE(alive(pid));
}

TEST_CASE("with scope group the helpers are asked as well") {
  World world;
  auto key = world.spawn_shell(
      "(trap 'echo helper; exit' TERM; while :; do sleep 0.05; done) & trap '' TERM; "
      "echo ready; wait; sleep 0.1");
  REQUIRE(world.wait_until([&] { return world.log(key) == "ready\n"; }));
  world.pass(0.2);
  StopCommand stop;
  stop.key = key;
  stop.scope = StopScope::group;
  stop.grace = Duration::seconds(10);
  world.runner->stop(stop);
  RankReport end = world.wait_final(key);
  CHECK(end.ended_by_us);
  CHECK_FALSE(end.forced);
  CHECK(world.log(key) == "ready\nhelper\n");
}

TEST_CASE("scenario 05: a kill from outside is a signal, not an exit code, and not ours") {
  World world;
  auto killed = world.spawn_shell("sleep 1000", 1);
  auto fine = world.spawn_shell("exit 0", 0);
  RankReport running = world.wait_running(killed);
  kill(static_cast<pid_t>(running.pid), SIGKILL);
  RankReport end = world.wait_final(killed);
  CHECK(end.state == ProcessState::exited);
  CHECK(end.signal == SIGKILL);
  CHECK(end.exit_code == 0);
  CHECK_FALSE(end.ended_by_us);
  CHECK_FALSE(end.out_of_memory);
  CHECK(world.wait_final(fine).signal == 0);
}

TEST_CASE("scenario 07: KILL at the deadline, only to the one that does not stop") {
  World world;
  auto stubborn = world.spawn_shell("trap '' TERM; echo ready; while :; do sleep 1; done", 0);
  auto willing = world.spawn_shell(
      "trap 'sleep 0.2; exit 4' TERM; echo ready; while :; do sleep 0.05; done", 1);
  REQUIRE(world.wait_until(
      [&] { return world.log(stubborn) == "ready\n" && world.log(willing) == "ready\n"; }));
  auto begin = std::chrono::steady_clock::now();
  world.stop(stubborn, 1.5);
  world.stop(willing, 1.5);
  RankReport end = world.wait_final(stubborn);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  CHECK(took.count() >= 1.5);
  CHECK(took.count() < 2.5);
  CHECK(end.signal == SIGKILL);
  CHECK(end.ended_by_us);
  CHECK(end.forced);
  CHECK(end.message == "did not stop within 1.5 s");
  end = world.wait_final(willing);
  CHECK(end.exit_code == 4);
  CHECK(end.ended_by_us);
  CHECK_FALSE(end.forced);
}

TEST_CASE("force overrides a polite stop that is under way") {
  World world;
  auto key = world.spawn_shell("trap '' TERM; echo ready; while :; do sleep 1; done");
  REQUIRE(world.wait_until([&] { return world.log(key) == "ready\n"; }));
  world.stop(key, 1000);
  world.stop(key, 0, true);
  RankReport end = world.wait_final(key, 5);
  CHECK(end.signal == SIGKILL);
  CHECK(end.forced);
}

TEST_CASE("a stopped (SIGSTOP) rank is seen as such, and still obeys a polite stop") {
  World world;
  auto key = world.spawn_shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done");
  RankReport running = world.wait_running(key);
  REQUIRE(world.wait_until([&] { return world.log(key) == "ready\n"; }));
  kill(static_cast<pid_t>(running.pid), SIGSTOP);
  CHECK(world.wait_until([&] { return world.runner->progress().at(0).stopped; }));
  world.stop(key, 10);
  CHECK(world.wait_final(key).exit_code == 5);
}

TEST_CASE(
    "scenario 08: nothing that a killed rank started survives, and its device is free at the "
    "report") {
  World world;
  auto key = world.spawn_shell(
      "setsid sh -c 'flock gpu0.lock sh -c \"echo held; sleep 1000\"' & "
      "sh -c '(setsid sleep 1001 & echo $! > orphan)'; wait");
  RankReport running = world.wait_running(key);
  std::string lock = world.directory.path() + "/gpu0.lock";
  REQUIRE(world.wait_until([&] {
    return world.log(key) == "held\n" && file_exists(world.directory.path() + "/orphan");
  }));
  REQUIRE(locked(lock));
  kill(static_cast<pid_t>(running.pid), SIGKILL);
  bool free_at_report = false;
  world.wait_until([&] {
    if (world.runner->query(key).state != ProcessState::exited) return false;
    free_at_report = !locked(lock);
    return true;
  });
  CHECK(free_at_report);
  CHECK_FALSE(alive(std::stoull(read_text(world.directory.path() + "/orphan"))));
}

TEST_CASE("a chain of processes that keep leaving their parents is caught as well") {
  World world;
  auto key = world.spawn_python(R"(
import os, time
print('ready', flush=True)
while True:
    if os.fork() != 0:
        time.sleep(0.002)
        os._exit(0)
    os.setsid()
)");
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::exited);
  CHECK(end.group_gone_us > 0);
}

TEST_CASE("scenario 38: what could not be executed is told apart from what ended early") {
  World world;
  std::string dir = world.directory.path();
  auto run = [&](std::vector<std::string> command, std::string cwd = "") {
    static uint32_t incarnation = 0;
    world.spec.command = std::move(command);
    world.spec.working_directory = cwd.empty() ? dir : cwd;
    SpawnCommand spawn = world.command(0, ++incarnation);
    world.spawn(spawn);
    RankReport end = world.wait_final(spawn.key);
    CHECK(end.pid == 0);
    return std::string(to_string(end.state)) + ": " + end.message;
  };
  write_file(dir + "/bad_interpreter", "#!/no/such/python3 -u\n");
  write_file(dir + "/no_interpreter", "echo hello\n");
  write_file(dir + "/not_executable", "#!/bin/sh\n");
  chmod((dir + "/bad_interpreter").c_str(), 0755);
  chmod((dir + "/no_interpreter").c_str(), 0755);
  CHECK(run({"/no/such/program"}) == "never_started: program /no/such/program does not exist");
  CHECK(run({"no-such-program"}) ==
        "never_started: program no-such-program does not exist in "
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
  CHECK(run({dir + "/bad_interpreter"}) ==
        "never_started: interpreter /no/such/python3 of program " + dir +
            "/bad_interpreter does not exist");
  CHECK(run({"./no_interpreter"}).find("a script needs a first line") != std::string::npos);
  CHECK(run({dir + "/not_executable"}).find("permission denied (mode 644") != std::string::npos);
  CHECK(run({dir}).find("it is a directory") != std::string::npos);
  CHECK(run({"/bin/true"}, "/no/such/directory") ==
        "never_started: working directory /no/such/directory: No such file or directory");
  CHECK(run({}) == "never_started: the job has no command");
}

TEST_CASE("a rank that dies at once is an early exit, not a failed start") {
  World world;
  auto key = world.spawn_shell("exit 127");
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::exited);
  CHECK(end.exit_code == 127);
}

TEST_CASE("scenario 38: the rank that dies is seen at once, whatever the others do") {
  World world;
  std::vector<IncarnationKey> keys;
  for (uint32_t rank = 0; rank < 8; ++rank) {
    keys.push_back(world.spawn_shell(rank == 6 ? "sleep 0.3; exit 9" : "sleep 60", rank));
  }
  RankReport end = world.wait_final(keys[6], 5);
  CHECK(end.exit_code == 9);
  for (uint32_t rank = 0; rank < 8; ++rank) {
    if (rank != 6) CHECK(world.runner->query(keys[rank]).state == ProcessState::running);
  }
}

TEST_CASE("a stop that comes before the program runs is obeyed") {
  World world;
  auto key = world.spawn_shell("sleep 1000");
  world.stop(key, 0, true);
  RankReport end = world.wait_final(key, 5);
  CHECK(end.ended_by_us);
}

TEST_CASE("an address in use is recognised") {
  World world;
  auto key = world.spawn_shell(
      "echo 'RuntimeError: The server socket has failed to bind to [::]:29500 (errno: 98 - Address "
      "already "
      "in use).' >&2; exit 1");
  CHECK(world.wait_final(key).bind_failed);
}

}  // namespace
}  // namespace regrow
