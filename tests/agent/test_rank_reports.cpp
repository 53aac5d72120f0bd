// What a rank reports of itself, from its call of the library to the runner's reports.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::World;

// A world whose ranks find library and module.
struct ReportingWorld : World {
  ReportingWorld() {
    namespace fs = std::filesystem;
    const char* source = getenv("REGROW_SOURCE_DIR");
    REQUIRE(source != nullptr);
    for (const auto& at :
         fs::directory_iterator(fs::path(options.shim).parent_path().parent_path())) {
      if (!at.path().filename().string().starts_with("lib") || !at.is_directory()) continue;
      for (const auto& file : fs::recursive_directory_iterator(at)) {
        if (file.path().filename() == "libregrow_rank.so.1") options.rank_library = file.path();
      }
    }
    REQUIRE(!options.rank_library.empty());
    spec.environment = {
        {"PYTHONPATH", std::string(source) + "/transport/rank_client/python", "recipe"},
        {"PYTHONDONTWRITEBYTECODE", "1", "recipe"}};
    spec.checkpoint.directory = directory.path() + "/checkpoints";
    restart_runner();
  }
  ProgressReport wait_step(int64_t step) {
    ProgressReport last;
    CHECK(wait_until([&] {
      for (const ProgressReport& report : runner->progress()) last = report;
      return last.step == step;
    }));
    return last;
  }
};

TEST_CASE("a rank that prints nothing reports its steps") {
  ReportingWorld world;
  SpawnCommand command = world.command(0);
  command.resume_step = 120;
  command.resume_path = "/checkpoints/step_120";
  command.world_size = 4;
  world.spec.command = {"/usr/bin/python3", "-c", R"(
import regrow, time
info = regrow.init()
assert info[:10] == (True, 0, 4, 0, 7, 1, 1, 0, 120, "/checkpoints/step_120"), info
assert info.checkpoint_directory.endswith("/checkpoints"), info
for n in range(121, 126):
    regrow.step(n, loss=n / 1000)
    time.sleep(0.1)
time.sleep(1000)
)"};
  world.spawn(command);
  ProgressReport report = world.wait_step(125);
  CHECK(report.loss == Approx(0.125));
  CHECK(report.step_seconds > 0.05);
  CHECK(report.step_seconds < 10);
  CHECK(report.step_us > 0);
  CHECK(report.output_us == report.step_us);  // a sign of progress, as an output line is
  CHECK(world.runner->moved().empty());
  world.stop(command.key, 0, true);
  CHECK(world.wait_final(command.key).last_step == 125);
}

TEST_CASE("what it reports outweighs what it prints") {
  ReportingWorld world;
  world.spec.progress_pattern = R"(step (?P<step>\d+) loss (?P<loss>[.\d]+))";
  auto key = world.spawn_python(R"(
import regrow, os, sys, time
print("step 3 loss 0.25", flush=True)
while not os.path.exists("next"): time.sleep(0.01)
print("step 4 loss 0.5", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
regrow.step(900)
time.sleep(0.2)
print("step 901 loss 0.25", flush=True)
print("step 902 loss 0.25", file=sys.stderr, flush=True)
open("printed", "w").close()
time.sleep(1000)
)");
  world.wait_step(3);
  testing::write_file(world.directory.path() + "/next", "");
  ProgressReport printed = world.wait_step(4);
  CHECK(printed.step_seconds > 0);
  CHECK(printed.loss == Approx(0.5));
  testing::write_file(world.directory.path() + "/go", "");
  REQUIRE(world.wait_until([&] { return file_exists(world.directory.path() + "/printed"); }));
  ProgressReport reported = world.wait_step(900);
  CHECK(reported.loss == Approx(0.5));
  CHECK(reported.step_seconds == 0);
  world.pass(0.1);
  reported = world.runner->progress().at(0);
  CHECK(reported.step == 900);
  CHECK(reported.output_us == reported.step_us);  // what it prints is no progress any more
  world.stop(key, 0, true);
  CHECK(world.wait_final(key).last_step == 900);
}

TEST_CASE("the newest step is known of a rank that ended at once, and of one that ended unseen") {
  ReportingWorld world;
  auto at_once = world.spawn_python("import regrow\nfor n in range(51): regrow.step(n)", 0);
  // It connects, reports and ends before the agent has looked once.
  for (int i = 0; i < 1000 && !file_exists(world.directory_of(at_once) + "/exit"); ++i)
    usleep(10'000);
  CHECK(world.wait_final(at_once).last_step == 50);

  auto unseen = world.spawn_python(R"(
import regrow, os, time
regrow.step(7)
while not os.path.exists("go"): time.sleep(0.01)
)",
                                   1);
  REQUIRE(world.wait_until([&] {
    auto all = world.runner->progress();
    return all.size() == 1 && all[0].step == 7;
  }));
  RankReport running = world.wait_running(unseen);
  world.drop_runner();
  testing::write_file(world.directory.path() + "/go", "");
  for (int i = 0; i < 1000 && testing::alive(running.pid); ++i) usleep(10'000);
  world.start_runner();
  CHECK(world.wait_final(unseen).last_step == 7);
}

TEST_CASE("a rank of another user reports to an agent that runs as root") {
  if (geteuid() != 0) return;
  ReportingWorld world;
  // The source may lie where that user cannot look.
  namespace fs = std::filesystem;
  fs::path module = world.directory.path() + "/module";
  fs::copy(fs::path(getenv("REGROW_SOURCE_DIR")) / "transport/rank_client/python", module,
           fs::copy_options::recursive);
  fs::copy(world.options.rank_library, module / "regrow/libregrow_rank.so.1");
  fs::permissions(world.directory.path(), fs::perms(0755));
  world.spec.environment[0].value = module;
  world.options.rank_library = "";
  world.options.allowed_users.uids = {65534};
  world.restart_runner();
  world.spec.uid = 65534;
  world.spec.gid = 65534;
  auto key = world.spawn_python("import regrow, time\nregrow.step(7)\ntime.sleep(1000)");
  world.wait_step(7);
  // And to the next agent, which has only the start file.
  world.restart_runner();
  struct stat socket = {};
  REQUIRE(stat((world.directory_of(key) + "/rank.sock").c_str(), &socket) == 0);
  CHECK(socket.st_uid == 65534);
  CHECK((socket.st_mode & 0777) == 0600);
}

TEST_CASE("an agent without the library names none; the socket goes with the rank") {
  ReportingWorld world;
  world.options.rank_library = "";
  world.restart_runner();
  auto none =
      world.spawn_shell("echo library=${REGROW_RANK_LIBRARY-none}. socket=$REGROW_SOCKET", 0);
  CHECK(world.wait_final(none).exit_code == 0);
  CHECK(world.log(none) == "library=none. socket=" + world.directory_of(none) + "/rank.sock\n");
  CHECK_FALSE(file_exists(world.directory_of(none) + "/rank.sock"));
}

}  // namespace
}  // namespace regrow
