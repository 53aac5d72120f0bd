// The cluster: who is in line for devices, and what they are told.
#include "tests/catch.h"
#include "tests/supervisors/support.h"

using namespace regrow;
using namespace regrow::test;

namespace {

const EntityId cluster_id = EntityId::cluster();

struct Cluster {
  EntityHost host{cluster_id};
  int64_t seconds = 1;

  Outbox give(Input in) {
    Outbox out = host.handle(input(cluster_id, std::move(in)), at(seconds));
    host.durable(host.n());
    return out;
  }
  const ClusterState& state() const { return std::get<ClusterState>(host.state()); }

  void wait_in_line(uint64_t job, uint32_t ranks) {
    give(in::Submit{"", spec_of(ranks)});
    in::RequestGrant request{{job}, 1, {}, {}, {}};
    for (uint32_t r = 0; r < ranks; ++r) request.ranks.push_back({r});
    give(request);
  }
  Outbox add_device(const std::string& host_name, bool usable = true) {
    return give(in::DeviceChanged{{host_name},
                                  DeviceView{{"gpu0"}, "sim", 80, usable, usable ? "" : "xid 79"}});
  }
};

size_t waits(const Outbox& out) {
  size_t n = 0;
  for (const EventRecord& r : out.records) n += std::holds_alternative<ev::GrantWaiting>(r.event);
  return n;
}

}  // namespace

TEST_CASE("a job in line is not told anew with every host that joins", "[cluster]") {
  Cluster c;
  c.wait_in_line(1, 100);
  c.wait_in_line(2, 200);
  REQUIRE(c.state().waiting.size() == 2);
  size_t told = 0;
  for (int i = 0; i < 50; ++i) {
    std::string name = "h" + std::to_string(i);
    told += waits(c.give(in::HostView{{name}, true, ""}));
    told += waits(c.add_device(name));
  }
  CHECK(told <= 2);
  // What it was told last is put right when it is time, without anything else happening.
  auto wake = c.host.wake_at(at(c.seconds));
  REQUIRE(wake.has_value());
  CHECK(*wake > at(c.seconds).time);
  c.seconds = 1 + kTellWaitingAfter.us / 1'000'000;
  CHECK(*wake <= at(c.seconds).time);
  Outbox out = c.give(in::Tick{});
  CHECK(waits(out) == 2);
  auto delayed = messages_of<in::GrantDelayed>(out);
  REQUIRE(delayed.size() == 2);
  CHECK(delayed[0].reason.find("50 free") != std::string::npos);
  CHECK(c.state().waiting[1].reason == delayed[1].reason);
  CHECK_FALSE(c.host.wake_at(at(c.seconds)).has_value());
}

TEST_CASE("a job that can be served does not wait for its next news", "[cluster]") {
  Cluster c;
  c.wait_in_line(1, 2);
  c.give(in::HostView{{"h1"}, true, ""});
  c.add_device("h1");
  c.give(in::HostView{{"h2"}, true, ""});
  Outbox out = c.add_device("h2");
  CHECK(messages_of<in::Granted>(out).size() == 1);
  CHECK(c.state().waiting.empty());
  CHECK_FALSE(c.host.wake_at(at(c.seconds)).has_value());
}

TEST_CASE("a dirty device is not given out until its host is clean", "[cluster]") {  // D-2
  Cluster c;
  c.give(in::HostView{{"h1"}, true, ""});
  c.add_device("h1");
  c.wait_in_line(1, 1);
  REQUIRE(c.state().leases.size() == 1);
  c.give(in::ReleaseDevices{{1}, 1, {{0}}});
  REQUIRE(c.state().leases.size() == 1);
  CHECK(c.state().leases[0].dirty);
  c.wait_in_line(2, 1);
  CHECK(c.state().waiting.size() == 1);
  Outbox out = c.give(in::CleanLease{{"h1"}, {1}, {0}});
  CHECK(messages_of<in::Granted>(out).size() == 1);
}
