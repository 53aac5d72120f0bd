#include "journal/view.h"

#include <nlohmann/json.hpp>

#include "journal/reflect_json.h"
#include "tests/catch.h"
#include "tests/journal/random_fill.h"

namespace regrow {
namespace {

TEST_CASE("times read as UTC with microseconds", "[view]") {
  CHECK(iso_time({0}) == "1970-01-01T00:00:00.000000Z");
  CHECK(iso_time({1796079281123456}) == "2026-11-30T22:54:41.123456Z");
  CHECK(iso_time({-1}) == "1969-12-31T23:59:59.999999Z");
}

TEST_CASE("an event as JSON is flat, with its own fields below", "[view]") {
  EventRecord record;
  record.seq = 12;
  record.entity = EntityId::rank({7}, {3});
  record.n = 4;
  record.at = {1796079281123456};
  record.reason = "asked to stop";
  record.caused_by = {EntityId::job({7}), 9};
  record.by = {"uid:1000", "operator"};
  record.event = ev::RankLost{{5}};
  auto json = event_to_json(record);
  CHECK(json["seq"] == 12);
  CHECK(json["n"] == 4);
  CHECK(json["time"] == "2026-11-30T22:54:41.123456Z");
  CHECK(json["time_us"] == 1796079281123456);
  CHECK(json["entity"] == "rank/7/3");
  CHECK(json["kind"] == "rank_lost");
  CHECK(json["reason"] == "asked to stop");
  CHECK(json["by"] == "uid:1000");
  CHECK(json["role"] == "operator");
  CHECK(json["caused_by"]["entity"] == "job/7");
  CHECK(json["caused_by"]["n"] == 9);
  CHECK(json["fields"]["incarnation"] == 5);

  record.by = {};
  record.caused_by = {};
  CHECK(event_to_json(record)["by"].is_null());
  CHECK(event_to_json(record)["caused_by"].is_null());
}

TEST_CASE("every event can be printed, whatever bytes it holds", "[view]") {
  testing::Filler filler(31);
  for (int i = 0; i < 500; ++i) {
    auto record = filler.record();
    auto text = dump_json(event_to_json(record));
    REQUIRE(nlohmann::json::parse(text)["seq"] == record.seq);
  }
}

TEST_CASE("an entity as JSON shows its state and why it is quarantined", "[view]") {
  EntityView view;
  view.id = EntityId::host({"h1"});
  HostState host;
  host.link = HostLink::suspect;
  view.state = host;
  view.n = 3;
  view.last_seq = 17;
  auto json = entity_to_json(view);
  CHECK(json["entity"] == "host/h1");
  CHECK(json["kind"] == "host");
  CHECK(json["n"] == 3);
  CHECK(json["seq"] == 17);
  CHECK(json["quarantined"].is_null());
  CHECK(json["state"]["link"] == "suspect");
  view.quarantined = "event 17 does not apply";
  view.state = {};
  CHECK(entity_to_json(view)["quarantined"] == "event 17 does not apply");
  CHECK(entity_to_json(view)["state"].is_null());
}

}  // namespace
}  // namespace regrow
