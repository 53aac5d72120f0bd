// Timers of entities, in virtual time.
#include "tests/actors/world.h"
#include "tests/catch.h"

namespace regrow::actor_tests {
namespace {

const EntityId kHost = EntityId::host({"h1"});

Duration less(Duration a, Duration b) { return {a.us - b.us}; }

std::vector<std::pair<HostLink, Time>> link_changes(const World& world) {
  std::vector<std::pair<HostLink, Time>> found;
  for (const EventRecord& record : world.events_of(kHost)) {
    if (auto* e = std::get_if<ev::HostLinkChanged>(&record.event))
      found.emplace_back(e->link, record.at);
  }
  return found;
}

}  // namespace

TEST_CASE("a deadline strikes at its time, not before and once") {
  World world;
  world.boot();
  world.add_host("h1", 0);
  Time heard = world.now();
  world.advance(less(kHostSuspectAfter, Duration::ms(50)));
  CHECK(link_changes(world).size() == 1);
  world.advance(Duration::ms(50));
  auto changes = link_changes(world);
  REQUIRE(changes.size() == 2);
  CHECK(changes[1].first == HostLink::suspect);
  CHECK(changes[1].second - heard == kHostSuspectAfter);
  world.advance(less(kHostUnreachableAfter, kHostSuspectAfter));
  changes = link_changes(world);
  REQUIRE(changes.size() == 3);
  CHECK(changes[2].first == HostLink::unreachable);
  CHECK(changes[2].second - heard == kHostUnreachableAfter);
  world.advance(Duration::seconds(30));
  CHECK(link_changes(world).size() == 3);
}

TEST_CASE("a deadline that moves away does not strike at its old time") {
  World world;
  world.boot();
  world.add_host("h1", 0);
  for (int beat = 0; beat < 20; ++beat) {
    world.advance(Duration::seconds(1));
    world.tell(kHost, in::AgentHeartbeat{{1}});
    world.run();
  }
  CHECK(link_changes(world).size() == 1);
}

TEST_CASE("an earlier wish replaces a later one, and timers do not pile up") {
  World world;
  world.boot();
  world.add_host("h1", 0);
  world.advance(Duration::seconds(11));  // unreachable: the next deadline is an hour away
  REQUIRE(link_changes(world).back().first == HostLink::unreachable);
  for (int round = 0; round < 8; ++round) {
    world.tell(kHost, in::AgentHeartbeat{{1}});  // up again: three seconds
    world.run();
    Time heard = world.now();
    REQUIRE(link_changes(world).back().first == HostLink::up);
    world.advance(kHostSuspectAfter);
    REQUIRE(link_changes(world).back() == std::pair{HostLink::suspect, heard + kHostSuspectAfter});
    world.advance(less(kHostUnreachableAfter, kHostSuspectAfter));
    REQUIRE(link_changes(world).back() ==
            std::pair{HostLink::unreachable, heard + kHostUnreachableAfter});
  }
  // Timers cannot be called off. What was asked for and replaced comes within the hour and is the
  // last of it.
  for (int seconds = 0; seconds < 3700; seconds += 2) {
    world.tell(kHost, in::AgentHeartbeat{{1}});
    world.advance(Duration::seconds(2));
  }
  CHECK(link_changes(world).back().first == HostLink::up);
  CHECK(world.timers() <= 2);
}

TEST_CASE("an order that nobody answers is given again") {
  World world;
  world.mute = {{0}};
  world.start_job(1);
  REQUIRE(world.performed<fx::Spawn>().size() == 1);
  world.advance(less(kAskAgainAfter, Duration::ms(50)));
  CHECK(world.performed<fx::Spawn>().size() == 1);
  world.advance(Duration::ms(50));
  CHECK(world.performed<fx::Spawn>().size() == 2);
  world.advance(kAskAgainAfter);
  CHECK(world.performed<fx::Spawn>().size() == 3);
}

}  // namespace regrow::actor_tests
