// What a rank finds when it starts: scenarios 30, 31, 32.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sstream>

#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::open_descriptors;
using testing::World;

TEST_CASE("scenario 30: nothing of the agent's own environment reaches a rank") {
  const char* names[] = {"SLURM_CPU_BIND", "CUDA_VISIBLE_DEVICES", "RANK",        "LD_PRELOAD_X",
                         "NCCL_DEBUG",     "OMP_NUM_THREADS",      "SECRET_TOKEN"};
  for (const char* name : names) setenv(name, "leaked", 1);
  World world;
  world.spec.environment = {{"MINE", "1", "recipe"}};
  auto key = world.spawn_shell("env");
  world.wait_final(key);
  for (const char* name : names) unsetenv(name);
  std::string environment = world.log(key);
  CHECK(environment.find("leaked") == std::string::npos);
  CHECK(environment.find("MINE=1\n") != std::string::npos);
  CHECK(environment.find("\nRANK=0\n") != std::string::npos);
}

TEST_CASE("scenario 30: affinity, limits, mask, dispositions and umask are set, not inherited") {
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  CPU_ZERO(&one);
  CPU_SET(static_cast<unsigned>(sched_getcpu()), &one);
  sched_setaffinity(0, sizeof one, &one);
  umask(077);
  signal(SIGPIPE, SIG_IGN);
  World world;
  auto key = world.spawn_shell(
      "nproc; umask; cat /proc/self/status | grep -E '^(SigBlk|SigIgn|SigCgt)'; ulimit -Sn; ulimit "
      "-Hn; ulimit -Ss");
  world.wait_final(key);
  sched_setaffinity(0, sizeof all, &all);
  umask(022);
  signal(SIGPIPE, SIG_DFL);
  std::istringstream lines(world.log(key));
  std::string line;
  std::getline(lines, line);
  CHECK(line == std::to_string(CPU_COUNT(&all)));
  std::getline(lines, line);
  CHECK(line == "0022");
  for (const char* name : {"SigBlk", "SigIgn", "SigCgt"}) {
    std::getline(lines, line);
    CHECK(line == std::string(name) + ":\t0000000000000000");
  }
  std::string soft, hard, stack;
  lines >> soft >> hard >> stack;
  CHECK(soft == hard);
  CHECK(stack == "8192");
}

TEST_CASE("scenario 32: a rank has the recipe's limit of open files, and only 0, 1, 2") {
  Fd noise(open("/dev/null", O_RDONLY));  // inheritable on purpose
  World world;
  world.spec.nofile = 3333;
  auto key = world.spawn_python(
      "import os, resource\n"
      "print(sorted(int(f) for f in os.listdir('/proc/self/fd') if os.path.exists('/proc/self/fd/' "
      "+ f)))\n"
      "print(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
      "print(os.getpgid(0) == os.getpid(), os.readlink('/proc/self/fd/0'))");
  world.wait_final(key);
  CHECK(world.log(key) == "[0, 1, 2]\n(3333, 3333)\nTrue /dev/null\n");
}

TEST_CASE("scenario 32: no descriptor, process or directory is left after rounds of ranks") {
  World world;
  // The first round opens what stays open.
  size_t before = 0;
  for (uint32_t round = 1; round <= 4; ++round) {
    std::vector<IncarnationKey> keys;
    for (uint32_t rank = 0; rank < 20; ++rank)
      keys.push_back(world.spawn_shell("sleep 100", rank, round));
    for (const auto& key : keys) world.wait_running(key);
    for (const auto& key : keys) world.stop(key, 0, true);
    for (const auto& key : keys) {
      world.wait_final(key);
      world.runner->acknowledge(key);
    }
    world.pass(0.1);
    if (round == 1) before = open_descriptors();
  }
  CHECK(open_descriptors() == before);
  CHECK(world.runner->inventory().empty());
}

TEST_CASE("scenario 32: running out of descriptors is an answer with numbers") {
  World world;
  rlimit old = {};
  getrlimit(RLIMIT_NOFILE, &old);
  int lowest_free = dup(0);
  close(lowest_free);
  rlimit low = {static_cast<rlim_t>(lowest_free) + 1, old.rlim_max};
  setrlimit(RLIMIT_NOFILE, &low);
  world.spec.command = {"/bin/true"};
  RankReport report = world.spawn(world.command(0));
  setrlimit(RLIMIT_NOFILE, &old);
  CHECK(report.state == ProcessState::never_started);
  INFO(report.message);
  CHECK(report.message.find("limit " + std::to_string(low.rlim_cur) + " descriptors") !=
        std::string::npos);
}

TEST_CASE("scenario 31: an environment that exec refuses is named, with its size") {
  World world;
  world.spec.command = {"/bin/true"};
  world.spec.environment = {{"HOSTS", std::string(131072, 'x'), "recipe"}};
  auto key = world.command(0).key;
  world.spawn(world.command(0));
  RankReport end = world.wait_final(key);
  CHECK(end.state == ProcessState::never_started);
  CHECK(end.message ==
        "environment variable HOSTS has 131079 bytes; exec accepts at most 131072 for one string "
        "(E2BIG); "
        "pass long values in a file");

  world.spec.environment.clear();
  for (int i = 0; i < 30; ++i) {
    world.spec.environment.push_back({"V" + std::to_string(i), std::string(100000, 'x'), "recipe"});
  }
  world.spawn(world.command(0, 2));
  end = world.wait_final(world.command(0, 2).key);
  CHECK(end.message.find("together have 30") != std::string::npos);
  CHECK(end.message.find("E2BIG") != std::string::npos);
}

TEST_CASE("each incarnation has a temporary directory of its own, gone after it") {
  World world;
  auto key = world.spawn_shell(
      "echo data > $TMPDIR/file; mkdir -p $TMPDIR/a/b; ln -s / $TMPDIR/link; echo $TMPDIR; "
      "stat -c %a $TMPDIR");
  world.wait_final(key);
  std::string output = world.log(key);
  std::string path = output.substr(0, output.find('\n'));
  CHECK(path.starts_with(world.directory.path() + "/regrow-7.0.1-"));
  CHECK(output.substr(output.find('\n') + 1) == "700\n");
  CHECK(world.wait_until([&] { return !file_exists(path); }));
  CHECK(file_exists("/etc/passwd"));
}

TEST_CASE("ranks of another user run as that user, and may use their own stderr by name") {
  if (geteuid() != 0) return;
  World world;
  world.drop_runner();
  world.options.allowed_users.any = true;
  world.start_runner();
  chmod(world.directory.path().c_str(), 0755);
  world.spec.uid = 65534;
  world.spec.gid = 65534;
  auto key = world.spawn_shell(
      "id -u; id -g; echo named > /dev/stderr; touch $TMPDIR/x && echo ok; "
      "cat /proc/self/oom_score_adj");
  RankReport end = world.wait_final(key);
  INFO(end.message);
  CHECK(world.log(key) == "65534\n65534\nok\n0\n");
  CHECK(end.last_words == "named\n");
}

TEST_CASE("a group that the user is not in is not given to it, whoever asks") {
  if (geteuid() != 0) return;
  World world;
  world.drop_runner();
  world.options.allowed_users.uids = {65534};
  world.start_runner();
  chmod(world.directory.path().c_str(), 0755);
  world.spec.uid = 65534;
  world.spec.gid = 0;
  auto key = world.spawn_shell("id -g; id -G");
  world.wait_final(key);
  CHECK(world.log(key) == "65534\n65534\n");
}

TEST_CASE("a root agent starts ranks of those whom it was told to, and of nobody else") {
  HostName host{"h1"};
  auto allowed = AllowedUsers::parse({"65534"});
  REQUIRE(allowed.ok());
  CHECK(allowed->refusal({65534, "nobody"}, 0, host).empty());
  CHECK(allowed->refusal({0, "root"}, 0, host) ==
        "host h1 starts no ranks as root; submit as a user that it allows, or start its agent with "
        "--allow-user root");
  CHECK(allowed->refusal({1000, "ann"}, 0, host).find("uid 1000 (ann)") != std::string::npos);
  CHECK(allowed->refusal({1000, ""}, 0, host).ends_with("--allow-user 1000"));
  auto any = AllowedUsers::parse({"any"});
  REQUIRE(any.ok());
  CHECK(any->refusal({1000, "ann"}, 0, host).empty());
  CHECK_FALSE(any->refusal({0, "root"}, 0, host).empty());
  auto root = AllowedUsers::parse({"root"});
  REQUIRE(root.ok());
  CHECK(root->refusal({0, "root"}, 0, host).empty());
  CHECK_FALSE(AllowedUsers{}.refusal({1000, "ann"}, 0, host).empty());
  auto unknown = AllowedUsers::parse({"no-such-user-here"});
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message.find("no-such-user-here") != std::string::npos);
}

TEST_CASE("an agent that is not root starts ranks as itself only, root's not either") {
  HostName host{"h1"};
  auto any = AllowedUsers::parse({"any", "0"});  // does not help: it cannot
  REQUIRE(any.ok());
  CHECK(any->refusal({1000, "ann"}, 1000, host).empty());
  CHECK(any->refusal({0, "root"}, 1000, host) ==
        "the agent of host h1 runs as uid 1000 and cannot start ranks as root; submit as its user, "
        "or run it as root with --allow-user root");
  CHECK_FALSE(any->refusal({1001, "bob"}, 1000, host).empty());
}

TEST_CASE("a user who is not allowed is refused before anything runs, and the end says why") {
  World world;
  world.drop_runner();
  world.options.allowed_users = {};
  world.start_runner();
  world.spec.command = {"/usr/bin/touch", world.directory.path() + "/ran"};
  world.spec.uid = geteuid() == 0 ? 0 : geteuid() + 1;
  RankReport report = world.spawn(world.command(0));
  CHECK(report.state == ProcessState::never_started);
  INFO(report.message);
  CHECK(report.message.find("--allow-user") != std::string::npos);
  CHECK_FALSE(file_exists(world.directory.path() + "/ran"));
}

}  // namespace
}  // namespace regrow
