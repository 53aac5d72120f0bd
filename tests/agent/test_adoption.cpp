// What survives the agent, what a new one makes of it, and what it refuses: F-1, F-2, R-2.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "actors/agent/child_process.h"
#include "actors/agent/rank_environment.h"
#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::alive;
using testing::read_text;
using testing::World;
using testing::write_file;

uint64_t shim_of(const World& world, const IncarnationKey& key) {
  return decode_pid_file(read_text(world.directory_of(key) + "/pid"))->shim_pid;
}

TEST_CASE("the next agent finds running ranks by their pids and ended ones by their status") {
  World world;
  auto runs = world.spawn_shell("sleep 1000", 0);
  auto ends_alone = world.spawn_shell("sleep 0.3; exit 42", 1);
  auto ended = world.spawn_shell("exit 7", 2);
  RankReport before = world.wait_running(runs);
  world.wait_running(ends_alone);
  world.wait_final(ended);
  world.drop_runner();
  usleep(600'000);
  world.reports.clear();
  world.start_runner();
  auto inventory = world.runner->inventory();
  REQUIRE(inventory.size() == 3);
  CHECK(inventory[0].state == ProcessState::running);
  CHECK(inventory[0].pid == before.pid);
  CHECK(inventory[0].start_time == before.start_time);
  CHECK(inventory[0].started_us > 0);
  CHECK(inventory[1].exit_code == 42);
  CHECK(inventory[2].exit_code == 7);
  CHECK(alive(before.pid));

  // And it can still be stopped, and seen to end.
  world.stop(runs, 5);
  RankReport end = world.wait_final(runs);
  CHECK(end.signal == SIGTERM);
  CHECK(end.ended_by_us);
  CHECK(world.reports.size() == 1);
}

TEST_CASE("a stop sequence goes on without the agent that began it") {
  World world;
  auto key = world.spawn_shell("trap '' TERM; echo ready; while :; do sleep 1; done");
  REQUIRE(world.wait_until([&] { return world.log(key) == "ready\n"; }));
  world.stop(key, 0.5);
  world.drop_runner();
  usleep(1'000'000);
  world.start_runner();
  RankReport end = world.runner->query(key);
  CHECK(end.state == ProcessState::exited);
  CHECK(end.signal == SIGKILL);
  CHECK(end.forced);
}

TEST_CASE("an acknowledged end is not reported again; a repeated spawn still gets the answer") {
  World world;
  auto key = world.spawn_shell("echo once >> runs; exit 7");
  world.wait_final(key);
  world.runner->acknowledge(key);
  CHECK(world.runner->inventory().empty());
  CHECK(world.runner->spawn(world.command(0), world.spec).exit_code == 7);
  world.restart_runner();
  CHECK(world.runner->inventory().empty());
  CHECK(world.runner->spawn(world.command(0), world.spec).exit_code == 7);
  world.pass(0.2);
  CHECK(read_text(world.directory.path() + "/runs") == "once\n");
}

TEST_CASE("R-2: however often a spawn is repeated there is one process") {
  World world;
  auto key = world.spawn_shell("echo started >> runs; sleep 1000");
  for (int i = 0; i < 5; ++i) world.runner->spawn(world.command(0), world.spec);
  RankReport first = world.wait_running(key);
  CHECK(world.runner->spawn(world.command(0), world.spec).pid == first.pid);
  world.restart_runner();
  RankReport again = world.runner->spawn(world.command(0), world.spec);
  CHECK(again.state == ProcessState::running);
  CHECK(again.pid == first.pid);
  world.pass(0.2);
  CHECK(read_text(world.directory.path() + "/runs") == "started\n");
}

TEST_CASE("F-1: an incarnation below the highest seen is refused, also by the next agent") {
  World world;
  world.wait_final(world.spawn_shell("exit 0", 0, 4));
  world.spec.command = {"/bin/sh", "-c", "touch ran"};
  RankReport refused = world.spawn(world.command(0, 3));
  CHECK(refused.state == ProcessState::gone);
  CHECK(refused.message ==
        "refused rank/7/0 incarnation 3: incarnation 4 of that rank was here already (F-1)");
  world.drop_runner();
  std::filesystem::remove_all(world.options.run_directory);  // as a reboot does to /run
  world.start_runner();
  CHECK(world.spawn(world.command(0, 3)).state == ProcessState::gone);
  CHECK(world.spawn(world.command(0, 4)).state == ProcessState::gone);
  CHECK(world.spawn(world.command(0, 5)).state == ProcessState::starting);
  CHECK(world.spawn(world.command(1, 1)).state == ProcessState::starting);  // another slot
}

TEST_CASE("who stopped what never came will not see it come later") {
  World world;
  StopCommand stop;
  stop.key = world.command(0, 2).key;
  CHECK(world.runner->stop(stop).state == ProcessState::never_started);
  world.spec.command = {"/bin/true"};
  CHECK(world.spawn(world.command(0, 2)).state == ProcessState::never_started);
}

TEST_CASE("the end of what never came is told until it is acknowledged, then never again") {
  World world;
  StopCommand stop;
  stop.key = world.command(0, 2).key;
  CHECK(world.runner->stop(stop).ended_by_us);
  world.restart_runner();
  REQUIRE(world.runner->inventory().size() == 1);
  CHECK(world.runner->inventory()[0].state == ProcessState::never_started);
  CHECK(world.runner->inventory()[0].ended_by_us);
  world.runner->acknowledge(stop.key);
  CHECK(world.runner->inventory().empty());
  world.restart_runner();
  CHECK(world.runner->inventory().empty());
}

TEST_CASE("a rank whose directory is lost is ended by its mark, and is gone, not never started") {
  World world;
  auto key = world.spawn_shell("setsid sleep 1000 & echo $! > helper; wait");
  world.wait_running(key);
  std::string file = world.directory.path() + "/helper";
  REQUIRE(world.wait_until([&] { return read_text(file).ends_with('\n'); }));
  uint64_t helper = std::stoull(read_text(file));
  world.drop_runner();
  kill(static_cast<pid_t>(shim_of(world, key)), SIGKILL);
  std::filesystem::remove_all(world.options.run_directory);
  world.start_runner();
  CHECK(world.runner->inventory().empty());
  StopCommand stop;
  stop.key = key;
  RankReport end = world.runner->stop(stop);
  CHECK(end.state == ProcessState::gone);
  CHECK(end.group_gone_us == 0);  // just killed; whether it died is not known yet
  CHECK(end.message == "nothing is known here of how it ended");
  REQUIRE(world.wait_until([&] { return world.runner->query(key).group_gone_us != 0; }));
  CHECK_FALSE(alive(helper));
  REQUIRE_FALSE(world.reports.empty());
  CHECK(world.reports.back().group_gone_us != 0);
}

// What a shim leaves that could not end everything: an exit file that says so, and a process that
// carries the incarnation's mark.
struct Leftover {
  Leftover(World& world, const IncarnationKey& key, bool acknowledged) {
    RankReport end;
    end.key = key;
    end.state = ProcessState::exited;
    end.signal = 9;
    end.last_words = "\ngroup_gone_us 0\n";  // what a rank prints is left as it is
    write_file(world.directory_of(key) + "/exit", encode_exit_file(end));
    if (acknowledged) write_file(world.directory_of(key) + "/acknowledged", "");
    ChildSpec child;
    child.arguments = {"/bin/sleep", "1000"};
    child.environment = {"REGROW_INCARNATION=" + incarnation_marker(world.options.uid, key)};
    pid = static_cast<uint64_t>(spawn_child(child));
  }
  ~Leftover() {
    kill(static_cast<pid_t>(pid), SIGKILL);
    waitpid(static_cast<pid_t>(pid), nullptr, 0);
  }
  uint64_t pid;
};

TEST_CASE("what an ended rank left behind is ended later, and that is reported once more") {  // D-2
  World world;
  world.drop_runner();
  IncarnationKey key = world.command(2, 5).key;
  bool acknowledged = GENERATE(false, true);  // by a controller, before this agent began
  Leftover leftover(world, key, acknowledged);
  world.start_runner();
  REQUIRE(world.runner->inventory().size() == 1);
  CHECK(world.runner->inventory()[0].group_gone_us == 0);
  CHECK(world.runner->acknowledged(key) == acknowledged);
  world.runner->acknowledge(key);
  REQUIRE(world.runner->inventory().size() == 1);  // its device is not free
  REQUIRE(world.wait_until([&] { return !world.reports.empty(); }));
  CHECK(world.reports.back().key == key);
  CHECK(world.reports.back().signal == 9);
  CHECK(world.reports.back().group_gone_us > 0);
  CHECK_FALSE(alive(leftover.pid));
  world.restart_runner();  // which tells it again: nobody has acknowledged it
  REQUIRE(world.runner->inventory().size() == 1);
  CHECK(world.runner->inventory()[0].group_gone_us > 0);
  CHECK(world.runner->inventory()[0].last_words == "\ngroup_gone_us 0\n");
  world.runner->acknowledge(key);
  world.restart_runner();
  CHECK(world.runner->inventory().empty());
}

TEST_CASE("a shim that is killed: the rank and all it started are ended, the rank is gone") {
  World world;
  auto key =
      world.spawn_shell("echo last words >&2; setsid sleep 1000 & echo $!; echo $! > helper; wait");
  RankReport running = world.wait_running(key);
  std::string file = world.directory.path() + "/helper";
  REQUIRE(world.wait_until(
      [&] { return !read_text(file).empty() && !world.log(key, "stderr").empty(); }));
  uint64_t helper = std::stoull(read_text(file));
  uint64_t shim = shim_of(world, key);
  bool with_agent = GENERATE(true, false);
  if (!with_agent) world.drop_runner();
  kill(static_cast<pid_t>(shim), SIGKILL);
  if (!with_agent) {
    usleep(100'000);
    CHECK(alive(helper));
    world.start_runner();
  }
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::gone);
  CHECK(end.pid == running.pid);
  CHECK(end.message.find("regrow-shim was killed") == 0);
  CHECK(end.group_gone_us > 0);
  CHECK(end.last_words == "last words\n");
  CHECK_FALSE(alive(running.pid));
  CHECK_FALSE(alive(helper));
  world.restart_runner();
  CHECK(world.runner->query(key).state == ProcessState::gone);
}

TEST_CASE("a rank whose directory was removed underneath still ends") {
  World world;
  IncarnationKey key = world.spawn_shell("sleep 1000");
  RankReport running = world.wait_running(key);
  std::filesystem::remove_all(world.options.run_directory + "/ranks");
  kill(static_cast<pid_t>(running.pid), SIGKILL);
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::gone);
  CHECK(end.message == "its directory was removed; how the rank ended is unknown");
  CHECK(end.group_gone_us > 0);
}

TEST_CASE(
    "an incarnation whose agent died before the shim began is burnt, and a late shim gives up") {
  World world;
  world.drop_runner();
  IncarnationKey key = world.command(3, 9).key;
  write_file(world.directory_of(key) + "/start", "");
  world.start_runner();
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::gone);  // a loss, not something that cannot be started
  CHECK(end.message == "regrow-shim was lost before it could start the rank");
  CHECK(world.spawn(world.command(3, 8)).state == ProcessState::gone);

  StartSettings start;
  start.arguments = {"/usr/bin/touch", world.directory.path() + "/ran"};
  write_file(world.directory_of(key) + "/start", encode_start_file(start));
  CHECK(system((world.options.shim + " " + world.directory_of(key)).c_str()) != 0);
  CHECK_FALSE(file_exists(world.directory.path() + "/ran"));
}

TEST_CASE("two shims in one directory: the second gives up") {
  World world;
  auto key = world.spawn_shell("echo ran >> runs; sleep 1000");
  world.wait_running(key);
  CHECK(system((world.options.shim + " " + world.directory_of(key)).c_str()) != 0);
  world.pass(0.1);
  CHECK(read_text(world.directory.path() + "/runs") == "ran\n");
}

TEST_CASE("a reboot voids what was running") {
  World world;
  auto key = world.spawn_shell("sleep 1000");
  RankReport running = world.wait_running(key);
  world.drop_runner();
  world.options.boot_id = "boot-2";
  world.start_runner();
  RankReport end = world.wait_final(key);
  CHECK(end.ended_by_us);
  CHECK_FALSE(alive(running.pid));
}

TEST_CASE("a missing shim is an answer, not a hang") {
  World world;
  world.drop_runner();
  world.options.shim = "/no/such/regrow-shim";
  world.start_runner();
  world.spec.command = {"/bin/true"};
  RankReport report = world.spawn(world.command(0));
  CHECK(report.state == ProcessState::never_started);
  CHECK(report.message == "cannot run /no/such/regrow-shim: No such file or directory");
}

TEST_CASE("old acknowledged incarnations go, the newest stay with their logs") {
  World world;
  for (uint32_t incarnation = 1; incarnation <= 6; ++incarnation) {
    auto key = world.spawn_shell("echo run", 0, incarnation);
    world.wait_final(key);
    world.runner->acknowledge(key);
  }
  CHECK_FALSE(file_exists(world.directory_of(world.command(0, 3).key)));
  CHECK(world.log(world.command(0, 4).key) == "run\n");
  CHECK(world.log(world.command(0, 6).key) == "run\n");
}

}  // namespace
}  // namespace regrow
