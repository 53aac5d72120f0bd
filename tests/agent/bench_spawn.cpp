// test_agent "[bench]": how long a spawn takes, from the command to the rank's exec, and an end
// from the leader's death to the report. Not part of the default run.
#include <signal.h>

#include <algorithm>
#include <iostream>

#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::World;

void print(const char* name, std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  auto at = [&](double part) {
    return ms[std::min(ms.size() - 1, static_cast<size_t>(part * static_cast<double>(ms.size())))];
  };
  std::cout << name << "_min " << ms.front() << " ms\n"
            << name << "_p50 " << at(0.5) << " ms\n"
            << name << "_p95 " << at(0.95) << " ms\n"
            << name << "_max " << ms.back() << " ms\n";
}

TEST_CASE("spawn and end latency", "[.bench]") {
  World world;
  world.spec.command = {"/bin/sleep", "1000"};
  std::vector<double> call, exec, known, end;
  for (uint32_t i = 1; i <= 200; ++i) {
    SpawnCommand spawn = world.command(0, i);
    int64_t begin = wall_clock_us();
    world.spawn(spawn);
    call.push_back(static_cast<double>(wall_clock_us() - begin) / 1e3);
    RankReport report;
    do {
      world.pass(0.0003);
      report = world.runner->query(spawn.key);
    } while (report.state == ProcessState::starting);
    known.push_back(static_cast<double>(wall_clock_us() - begin) / 1e3);
    exec.push_back(static_cast<double>(report.started_us - begin) / 1e3);
    begin = wall_clock_us();
    kill(static_cast<pid_t>(report.pid), SIGKILL);
    do {
      world.pass(0.0003);
      report = world.runner->query(spawn.key);
    } while (report.state == ProcessState::running);
    end.push_back(static_cast<double>(wall_clock_us() - begin) / 1e3);
    world.runner->acknowledge(spawn.key);
  }
  print("spawn_call", call);
  print("spawn_command_to_exec", exec);
  print("spawn_command_to_report", known);
  print("death_to_report", end);
}

TEST_CASE("many at once", "[.bench]") {
  World world;
  world.spec.command = {"/bin/sleep", "1000"};
  int64_t begin = wall_clock_us();
  std::vector<IncarnationKey> keys;
  for (uint32_t rank = 0; rank < 100; ++rank) {
    keys.push_back(world.command(rank).key);
    world.spawn(world.command(rank));
  }
  for (const auto& key : keys) world.wait_running(key);
  std::cout << "spawn_100_ranks " << static_cast<double>(wall_clock_us() - begin) / 1e3 << " ms\n";
  begin = wall_clock_us();
  for (const auto& key : keys) world.stop(key, 0, true);
  for (const auto& key : keys) world.wait_final(key);
  std::cout << "kill_100_ranks " << static_cast<double>(wall_clock_us() - begin) / 1e3 << " ms\n";
}

}  // namespace
}  // namespace regrow
