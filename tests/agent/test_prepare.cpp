#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <set>

#include "actors/agent/module_check.h"
#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::World;
using testing::write_file;

PrepareCommand command_for(uint64_t job, uint32_t generation, uint32_t attempt = 0) {
  PrepareCommand command;
  command.job = {job};
  command.generation = {generation};
  command.attempt = attempt;
  command.want_port = true;
  return command;
}

TEST_CASE(
    "ports: one job each, the same answer for the same question, another for the next attempt") {
  World world;
  PrepareReport first = world.prepare(command_for(1, 1));
  CHECK(first.error.empty());
  CHECK(first.address == "127.0.0.1");
  CHECK(first.port >= 20000);
  CHECK(first.port <= 29999);
  CHECK(world.prepare(command_for(1, 1)).port == first.port);
  CHECK(world.prepare(command_for(2, 1)).port != first.port);
  PrepareReport second = world.prepare(command_for(1, 1, 1));
  CHECK(second.port != first.port);
  PrepareCommand avoiding = command_for(1, 2);
  uint32_t would_be = world.prepare(avoiding).port;
  avoiding.avoid_ports = {would_be};
  CHECK(world.prepare(avoiding).port != would_be);
  PrepareCommand none = command_for(3, 1);
  none.want_port = false;
  CHECK(world.prepare(none).port == 0);
}

TEST_CASE("ports: two agents of one machine never give out the same") {
  PortLeases one("a", 20500, 20502), two("b", 20500, 20502);
  std::string error;
  std::set<uint32_t> ports = {one.lease({1}, {1}, 0, {}, error), two.lease({1}, {1}, 0, {}, error),
                              two.lease({2}, {1}, 0, {}, error)};
  CHECK(ports == std::set<uint32_t>{20500, 20501, 20502});
  CHECK(one.lease({2}, {1}, 0, {}, error) == 0);
  CHECK(error == "no free port between 20500 and 20502; widen the agent's port range");
  two.release({2}, 1);  // of another port: nothing happens
  CHECK(one.lease({2}, {1}, 0, {}, error) == 0);
}

TEST_CASE("ports: one that somebody else has bound is not given out") {
  Fd taken(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(20600);
  REQUIRE(bind(taken.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  PortLeases leases("a", 20600, 20601);
  std::string error;
  CHECK(leases.lease({1}, {1}, 0, {}, error) == 20601);
}

TEST_CASE("ports: an agent that takes over a running rank 0 keeps its port from others") {
  World world;
  SpawnCommand spawn = world.command(0);
  PrepareReport prepared = world.prepare(command_for(7, 1));
  spawn.master_port = prepared.port;
  world.spec.command = {"/bin/sleep", "100"};
  world.spawn(spawn);
  world.wait_running(spawn.key);
  world.drop_runner();
  world.options.first_port = world.options.last_port = prepared.port;
  world.start_runner();
  CHECK(world.prepare(command_for(8, 1)).port == 0);
  world.stop(spawn.key, 0, true);
  world.wait_final(spawn.key);
  CHECK(world.prepare(command_for(8, 1)).port == prepared.port);
}

TEST_CASE("a missing module or interpreter is named before anything starts") {
  World world;
  PrepareCommand command = command_for(1, 1);
  command.interpreter = "/usr/bin/python3";
  command.modules = {"json", "os.path", "email.mime.text"};
  CHECK(world.prepare(command).error.empty());
  command.modules = {"json", "no_such_module_here"};
  CHECK(world.prepare(command).error ==
        "interpreter /usr/bin/python3 cannot import module no_such_module_here: No module named "
        "'no_such_module_here'; install it for this interpreter or name another one");
  command.modules = {"email.nothing"};
  CHECK(world.prepare(command).error.find("module email.nothing") != std::string::npos);
  command.interpreter = "/no/such/python";
  CHECK(world.prepare(command).error ==
        "interpreter /no/such/python cannot be run: No such file or directory; name an existing "
        "one in the "
        "recipe");
}

TEST_CASE("modules are looked for where the recipe's environment says") {
  World world;
  write_file(world.directory.path() + "/lib/my_model.py", "");
  PrepareCommand command = command_for(1, 1);
  command.interpreter = "/usr/bin/python3";
  command.modules = {"my_model"};
  CHECK_FALSE(world.prepare(command).error.empty());
  command.environment = {{"PYTHONPATH", world.directory.path() + "/lib", "recipe"}};
  CHECK(world.prepare(command).error.empty());
}

TEST_CASE("an interpreter that hangs is given up (D-1)") {
  World world;
  std::string script = world.directory.path() + "/hangs";
  write_file(script, "#!/bin/sh\nsleep 1000\n");
  REQUIRE(chmod(script.c_str(), 0755) == 0);
  CHECK(check_modules(script, {"x"}, {{"PATH", "/usr/bin:/bin", ""}}, {}, Duration::seconds(1)) ==
        "interpreter " + script + " did not answer within 1 s when asked for modules");
}

TEST_CASE("modules are looked for as the user whose job it is, never as root for somebody else") {
  if (geteuid() != 0) return;
  World world;
  world.drop_runner();
  world.options.allowed_users.uids = {65534};
  world.start_runner();
  REQUIRE(chmod(world.directory.path().c_str(), 0777) == 0);
  std::string script = world.directory.path() + "/python";
  write_file(script,
             "#!/bin/sh\nid -u > $OUT; id -g >> $OUT; id -G >> $OUT; echo $HOME >> $OUT\n"
             "echo regrow-modules-found\n");
  REQUIRE(chmod(script.c_str(), 0755) == 0);
  PrepareCommand command = command_for(1, 1);
  command.interpreter = script;
  command.modules = {"x"};
  std::string out = world.directory.path() + "/out";
  command.environment = {{"OUT", out, "recipe"}};
  command.uid = 65534;
  CHECK(world.prepare(command).error.empty());
  CHECK(testing::read_text(out).starts_with("65534\n65534\n65534\n"));
  CHECK(testing::read_text(out).find("root") == std::string::npos);
  command.interpreter = "/no/such/python";
  CHECK(world.prepare(command).error.find("cannot be run: No such file") != std::string::npos);
  command.interpreter = script;
  command.environment = {{"OUT", out + "2", "recipe"}};
  command.uid = 0;
  CHECK(world.runner->prepare(command).wait(world.io.waitScope).error.find("--allow-user root") !=
        std::string::npos);
  CHECK_FALSE(file_exists(out + "2"));
}

TEST_CASE("prepare reports the checkpoints of its host") {
  World world;
  write_file(world.directory.path() + "/ckpt/step_20/rank_0.pt", "x");
  write_file(world.directory.path() + "/ckpt/step_30/other", "x");
  PrepareCommand command = command_for(1, 1);
  command.checkpoint.directory = world.directory.path() + "/ckpt";
  command.checkpoint.shards = "rank_{rank}.pt";
  PrepareReport report = world.prepare(command);
  REQUIRE(report.checkpoints.size() == 2);
  CHECK(report.checkpoints[0].problem == "shards 0/1");
  CHECK(report.checkpoints[1].complete);
  CHECK(report.job == command.job);
  CHECK(report.generation == command.generation);
}

}  // namespace
}  // namespace regrow
