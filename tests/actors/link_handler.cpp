// Which session is a host's: that of the agent that was there first, and of that agent the newest.
#include "actors/controller/link_handler.h"

#include <cstdlib>
#include <filesystem>

#include "actors/controller/old_copy.h"
#include "tests/actors/world.h"
#include "tests/catch.h"
#include "transport/kj_loop.h"

namespace regrow::actor_tests {
namespace {

const HostName h1{"h1"};

struct TemporaryDirectory {
  TemporaryDirectory() {
    char name[] = "/tmp/regrow-link-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

struct Link {
  TemporaryDirectory directory;
  World world;
  KjLoop loop{"test-kj"};
  LinkHandler handler{world.context, world.board, {"cluster-1", {5, 77}, directory.path}};
  HostLinkServer link{loop, handler};

  Link() {
    world.boot();
    handler.set_link(&link);
  }
  static AgentHello hello(const std::string& uid) {
    AgentHello hello;
    hello.name = h1;
    hello.uid = uid;
    hello.boot_id = "boot";
    hello.protocol = 1;
    return hello;
  }
  std::string connect(uint64_t session, const AgentHello& hello) {
    std::string error = handler.agent_connected({session}, {}, hello).error;
    world.run();
    return error;
  }
  void disconnect(uint64_t session) {
    handler.agent_disconnected({session}, "gone");
    world.run();
  }
  // What reaches the host does so in this session.
  SessionId reached() {
    world.sent.clear();
    StopCommand stop;
    stop.key = {{1}, {0}, {1}};
    auto effect = std::make_shared<const Effect>(fx::Stop{h1, stop});
    caf::anon_send(world.effects_actor, msg::Perform{effect});
    world.run();
    return world.sent.empty() ? SessionId{} : world.sent.back().session;
  }
};

}  // namespace

TEST_CASE("an agent with the name of a connected host is refused and changes nothing") {
  Link link;
  REQUIRE(link.connect(1, Link::hello("uid-1")).empty());
  CHECK(link.reached() == SessionId{1});
  LogCapture log;
  std::string why = link.connect(2, Link::hello("uid-2"));
  CHECK(why.find("another agent is connected as host h1") != std::string::npos);
  CHECK(why.find("another --name") != std::string::npos);
  CHECK(log.has("host/h1 refused: another agent"));
  CHECK(link.world.board.session(h1) == SessionId{1});
  CHECK(link.reached() == SessionId{1});
  link.disconnect(2);
  CHECK(link.world.board.session(h1) == SessionId{1});
  CHECK(link.reached() == SessionId{1});
  CHECK(link.world.state<HostState>(EntityId::host(h1)).uid == "uid-1");

  // Its own agent is not kept out, and after its end the name is free.
  CHECK(link.connect(3, Link::hello("uid-1")).empty());
  link.disconnect(1);
  CHECK(link.world.board.session(h1) == SessionId{3});
  CHECK(link.reached() == SessionId{3});
  link.disconnect(3);
  CHECK(link.world.board.session(h1) == SessionId{});
  CHECK(link.connect(4, Link::hello("uid-2")).empty());
  CHECK(link.world.board.session(h1) == SessionId{4});
}

TEST_CASE("an agent of another cluster is refused, whatever epoch it has seen") {
  Link link;
  AgentHello hello = Link::hello("uid-1");
  hello.cluster_id = "cluster-0";
  hello.seen_epoch = {9, 99};
  std::string why = link.connect(1, hello);
  CHECK(why.find("belongs to cluster cluster-0, this controller is of cluster cluster-1") !=
        std::string::npos);
  CHECK(link.world.fatal.empty());
  CHECK_FALSE(link.world.has_actor(EntityId::host(h1)));
  hello.cluster_id = "cluster-1";
  hello.seen_epoch = {5, 77};
  CHECK(link.connect(2, hello).empty());
  CHECK(link.world.has_actor(EntityId::host(h1)));
}

TEST_CASE("an agent that obeys a later controller stops this one and marks its journal for good") {
  Epoch seen = GENERATE(Epoch{7, 70}, Epoch{5, 78});
  Link link;
  CHECK_FALSE(read_old_copy(link.directory.path));
  AgentHello hello = Link::hello("uid-1");
  hello.seen_epoch = seen;
  CHECK_FALSE(link.connect(1, hello).empty());
  REQUIRE(link.world.fatal.size() == 1);
  auto found = read_old_copy(link.directory.path);
  REQUIRE(found);
  CHECK(found->seen_epoch == seen.number);
  CHECK(explain(*found, link.directory.path) == link.world.fatal[0]);
  CHECK(link.world.fatal[0].find("--recover-epoch") != std::string::npos);
  CHECK(link.world.fatal[0].find(link.directory.path + "/OLD_COPY") != std::string::npos);
  CHECK(remove_old_copy_mark(link.directory.path).empty());
  CHECK_FALSE(read_old_copy(link.directory.path));
}

}  // namespace regrow::actor_tests
