// A host: inventories, obligations to kill, and who may speak for it.
#include "tests/catch.h"
#include "tests/supervisors/support.h"

using namespace regrow;
using namespace regrow::test;

namespace {

const HostName h1{"h1"};
const EntityId host_id = EntityId::host(h1);

struct Host {
  EntityHost host{host_id};
  int64_t seconds = 1;

  Outbox give(Input in) {
    Outbox out = host.handle(input(host_id, std::move(in)), at(seconds));
    Outbox later = host.durable(host.n());
    for (auto& e : later.effects) out.effects.push_back(e);
    return out;
  }
  Outbox connect(uint64_t session, std::vector<RankReport> ranks = {},
                 const std::string& boot = "boot-1", const std::string& uid = "uid-1") {
    AgentHello hello;
    hello.name = h1;
    hello.uid = uid;
    hello.boot_id = boot;
    hello.address = "10.0.0.1";
    hello.ranks = std::move(ranks);
    return give(in::AgentConnected{{session}, hello});
  }
  const HostState& state() const { return std::get<HostState>(host.state()); }
};

fx::AnswerInventory answer_of(const Outbox& out) {
  auto answers = effects_of<fx::AnswerInventory>(out);
  REQUIRE(answers.size() == 1);
  return answers[0];
}

using Keys = std::vector<IncarnationKey>;

}  // namespace

TEST_CASE("a returning agent is told what to keep and what to kill", "[host]") {
  Host h;
  h.connect(1);
  for (uint32_t rank : {0, 1, 2}) h.give(in::AttachRank{key(rank, 1)});
  h.give(in::DoomRank{key(1, 1), "given up"});
  Outbox out =
      h.connect(2, {report(ProcessState::running, 0, 1), report(ProcessState::running, 1, 1),
                    report(ProcessState::running, 7, 4)});
  CHECK(answer_of(out).keep == Keys{key(0, 1), key(7, 4)});
  CHECK(answer_of(out).kill == Keys{key(1, 1)});
  CHECK(h.state().unknown == Keys{key(7, 4)});  // shown, never killed
  auto told = messages_of<in::InventoryReport>(out);
  REQUIRE(told.size() == 2);
  CHECK(told[0].report.key == key(0, 1));
  CHECK(told[1].report.key == key(2, 1));
  CHECK(told[1].report.state == ProcessState::unknown);
  CHECK(told[0].session == SessionId{2});
}

TEST_CASE("after a reboot everything is gone, and an order that still waits for it is burnt",
          "[host]") {
  Host h;
  h.connect(1);
  h.give(in::AttachRank{key(0, 1)});
  Outbox out = h.connect(2, {}, "boot-2");
  CHECK(answer_of(out).kill == Keys{key(0, 1)});
  auto told = messages_of<in::InventoryReport>(out);
  REQUIRE(told.size() == 1);
  CHECK(told[0].report.state == ProcessState::gone);
}

TEST_CASE("an agent's end of a rank that the host has not heard of goes to the rank", "[host]") {
  Host h;
  Outbox out = h.connect(1, {report(ProcessState::exited, 0, 1, 1)});
  CHECK(effects_of<fx::Acknowledge>(out).empty());
  CHECK(messages_of<in::InventoryReport>(out).size() == 1);
}

TEST_CASE("a rank that claims its process late is told what the agent said of it", "[host]") {
  Host h;
  h.connect(1, {report(ProcessState::running, 0, 1)});
  CHECK(h.state().unknown.size() == 1);
  Outbox out = h.give(in::AttachRank{key(0, 1)});
  CHECK(h.state().unknown.empty());
  auto told = messages_of<in::InventoryReport>(out);
  REQUIRE(told.size() == 1);
  CHECK(told[0].report.state == ProcessState::running);
}

TEST_CASE("what is doomed is killed again and again until its end is reported", "[host]") {
  Host h;
  h.connect(1);
  h.give(in::AttachRank{key(0, 1)});
  CHECK(answer_of(h.give(in::DoomRank{key(0, 1), "given up"})).kill == Keys{key(0, 1)});
  h.give(in::AgentHeartbeat{{1}});
  h.seconds = 4;
  h.give(in::AgentHeartbeat{{1}});
  h.seconds = 6;
  h.give(in::AgentHeartbeat{{1}});
  CHECK(*h.host.wake_at(at(6)) <= at(6).time);
  CHECK(answer_of(h.give(in::Tick{})).kill == Keys{key(0, 1)});
  h.give(in::DetachRank{key(0, 1)});
  CHECK(*h.host.wake_at(at(6)) > at(6).time);
}

TEST_CASE("a lease is clean when no incarnation of its slot is left", "[host]") {  // D-2
  Host h;
  h.connect(1);
  h.give(in::AttachRank{key(0, 1)});
  h.give(in::AttachRank{key(0, 2)});
  CHECK(messages_of<in::CleanLease>(h.give(in::CheckLease{{1}, {0}})).empty());
  CHECK(messages_of<in::CleanLease>(h.give(in::DetachRank{key(0, 1)})).empty());
  CHECK(messages_of<in::CleanLease>(h.give(in::DetachRank{key(0, 2)})).size() == 1);
  CHECK(messages_of<in::CleanLease>(h.give(in::CheckLease{{1}, {0}})).size() == 1);
}

TEST_CASE("a connection that said no hello to this controller is hung up", "[host]") {
  Host h;
  h.connect(1);
  h.give(in::AgentGone{{1}, "reset"});
  Outbox out = h.give(in::AgentHeartbeat{{2}});
  CHECK(effects_of<fx::DropSession>(out).size() == 1);
  h.connect(3);
  CHECK(effects_of<fx::DropSession>(h.give(in::AgentHeartbeat{{2}})).empty());
}

TEST_CASE("a second machine does not take a connected host's name", "[host]") {
  Host h;
  h.connect(1);
  Outbox out = h.connect(2, {}, "boot-9", "uid-2");
  REQUIRE(effects_of<fx::DropSession>(out).size() == 1);
  CHECK(effects_of<fx::DropSession>(out)[0].session == SessionId{2});
  CHECK(h.state().uid == "uid-1");
  h.give(in::AgentGone{{1}, "retired"});
  h.connect(3, {}, "boot-9", "uid-2");
  CHECK(h.state().uid == "uid-2");
}

TEST_CASE("a host is suspect, unreachable and lost by its silence alone", "[host]") {
  Host h;
  h.connect(1);
  struct Row {
    int64_t seconds;
    HostLink link;
  };
  for (const Row& row : std::vector<Row>{{3, HostLink::up},
                                         {4, HostLink::suspect},
                                         {10, HostLink::suspect},
                                         {11, HostLink::unreachable},
                                         {3600, HostLink::unreachable},
                                         {3601, HostLink::lost}}) {
    h.seconds = row.seconds;
    h.give(in::Tick{});
    INFO("after " << row.seconds);
    CHECK(h.state().link == row.link);
  }
  h.give(in::AgentHeartbeat{{1}});
  CHECK(h.state().link == HostLink::up);
  // A pause of the controller is not held against the host.
  Outbox out = h.host.handle(input(host_id, in::Tick{}), {at(3700).time, at(3699).time});
  CHECK(out.records.empty());
}

TEST_CASE("a group goes on after a crash between its order and its result", "[group]") {
  EntityId id = EntityId::group({1}, {0});
  EntityHost group(id);
  EventRecord r;
  r.entity = id;
  r.n = 1;
  r.event = ev::GroupStopOrdered{{2}, {{0}}, {}};
  group.replay(r);
  Outbox out = group.handle(input(id, in::Resumed{}), at(1));
  CHECK(only_event<ev::GroupStopped>(out) != nullptr);
  CHECK(messages_of<in::GroupStatus>(out).size() == 1);
}

TEST_CASE("a device's newest news count, whichever arrives last", "[device]") {
  EntityId id = EntityId::device(h1, {"gpu0"});
  EntityHost device(id);
  auto see = [&](bool healthy, uint64_t session, bool inventory) {
    DeviceReport r;
    r.name = {"gpu0"};
    r.uid = "u";
    r.healthy = healthy;
    r.fault = healthy ? "" : "xid 79";
    device.handle(input(id, in::DeviceSeen{r, {session}, inventory}), at(1));
    return std::get<DeviceState>(device.state()).health;
  };
  CHECK(see(true, 1, false) == DeviceHealth::ok);
  CHECK(see(false, 1, true) == DeviceHealth::ok);  // of the beginning of connection 1: overtaken
  CHECK(see(false, 2, true) == DeviceHealth::faulty);
  CHECK(see(true, 2, false) == DeviceHealth::ok);
}
