// Events as sentences for someone who follows a job.
#include "journal/view.h"
#include "supervisors/events.h"
#include "tests/catch.h"
#include "tools/regrow/narration.h"
#include "tools/regrow/state_text.h"

#include <nlohmann/json.hpp>

using namespace regrow;
using namespace regrow::cli;

namespace {

Json event(Event what, std::string reason, Actor by = {}) {
  EventRecord record;
  record.seq = 41;
  record.entity = EntityId::job({7});
  record.n = 3;
  record.at = {1'000'000'000'000'000};
  record.reason = std::move(reason);
  record.by = std::move(by);
  record.event = std::move(what);
  return event_to_json(record);
}

std::string told(const Json& e) {
  auto sentence = narrate(e);
  return sentence ? sentence->text : "(nothing)";
}

}  // namespace

TEST_CASE("a loss and its recovery read as a story") {
  ev::IncidentOpened incident;
  incident.incident = 1;
  incident.rank = {2};
  CHECK(told(event(incident, "rank 2 (h2/sim0) was killed by signal 9, not by us")) ==
        "incident 1: rank 2 (h2/sim0) was killed by signal 9, not by us");

  ev::StageEntered stage;
  stage.stage = Stage::backing_off;
  CHECK(told(event(stage, "no back-off")) == "(nothing)");
  stage.not_before = {1'000'000'000'000'000 + 2'000'000};
  CHECK(told(event(stage, "second restart without progress")) ==
        "waiting 2.0 s: second restart without progress");

  ev::RecoveryPlanned plan;
  plan.generation = {2};
  plan.incident = 1;
  CHECK(told(event(plan, "all ranks in place (rung 4 of 6), unit 1 of 3")) ==
        "recovering: all ranks in place (rung 4 of 6), unit 1 of 3");
  plan.incident = 0;
  CHECK(told(event(plan, "first start")) == "starting: first start");

  ev::GenerationStarted started;
  started.generation = {2};
  started.resume_step = 120;
  started.rejected = {"step_140 rejected: shards 3/4"};
  auto sentence = narrate(event(started, ""));
  REQUIRE(sentence);
  CHECK(sentence->text == "generation 2 starts from step 120; step_140 rejected: shards 3/4");
  CHECK(sentence->tone == Tone::warning);
  started.resume_step = -1;
  started.rejected.clear();
  CHECK(told(event(started, "")) == "generation 2 starts from the beginning");

  ev::GenerationRunning running;
  running.generation = {2};
  CHECK(told(event(running, "")) == "generation 2 runs");
}

TEST_CASE("placement names hosts and ranks") {
  ev::SlotsPlaced placed;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    placed.placements.push_back({{rank}, {rank < 3 ? "h1" : "h2"}, {}});
  }
  CHECK(told(event(placed, "")) == "placed on h1: ranks 0-2, h2: rank 3");
}

TEST_CASE("ends and wishes say who and why") {
  ev::EndDecided decided;
  decided.phase = Phase::failed;
  CHECK(told(event(decided, "the same failure twice at step 7")) ==
        "the same failure twice at step 7");
  ev::JobEnded ended;
  ended.phase = Phase::failed;
  auto sentence = narrate(event(ended, "the same failure twice at step 7"));
  REQUIRE(sentence);
  CHECK(sentence->text == "job failed");
  CHECK(sentence->tone == Tone::bad);

  ev::DesiredChanged cancel;
  cancel.desired = Desired::cancel;
  CHECK(told(event(cancel, "wrong data", {"uid:1000", "operator"})) ==
        "cancel: wrong data (by uid:1000)");
}

TEST_CASE("bookkeeping is not told, but listed") {
  ev::SlotRunning slot;
  slot.rank = {3};
  slot.incarnation = {2};
  Json e = event(slot, "");
  CHECK(told(e) == "(nothing)");
  CHECK(kind_of(e) == "slot_running");
  CHECK(explain(e) == "incarnation=2 rank=3");
}

TEST_CASE("every kind of event can be told and listed, also with no fields at all") {
  auto check = [](Event what) {
    Json e = event(std::move(what), "because\nof \033[31mthis");
    CHECK(explain(e) == "because / of \xef\xbf\xbd[31mthis");
    if (auto sentence = narrate(e)) CHECK(sentence->text.find('\033') == std::string::npos);
    e.erase("fields");
    narrate(e);
    explain(e);
    tone_of(e);
  };
  [&]<size_t... I>(std::index_sequence<I...>) { (check(Event(std::in_place_index<I>)), ...); }
  (std::make_index_sequence<std::variant_size_v<Event>>());
}

TEST_CASE("a state is shown as indented lines") {
  Json state = Json::parse(R"({"phase": "running", "running_since": 1764542881000000, "ended_at": 0,
    "stop": [], "start": [0, 1], "path": "", "healthy_for": 600000000, "cap_bytes": 67108864,
    "slots": [{"rank": 0, "host": "h1"}, {"rank": 1, "host": "h2"}], "words": "a\nb"})");
  std::string text = state_text(state, 2);
  CHECK(text.find("  phase: running\n") != std::string::npos);
  CHECK(text.find("  ended_at: -\n") != std::string::npos);
  CHECK(text.find("  running_since: 2025-1") != std::string::npos);
  CHECK(text.find("  stop: []\n") != std::string::npos);
  CHECK(text.find("  start: [0, 1]\n") != std::string::npos);
  CHECK(text.find("  path: \"\"\n") != std::string::npos);
  CHECK(text.find("  healthy_for: 10m 00s\n") != std::string::npos);
  CHECK(text.find("  cap_bytes: 64 MiB\n") != std::string::npos);
  CHECK(text.find("  slots:\n    - host: h1\n      rank: 0\n    - host: h2\n") !=
        std::string::npos);
  CHECK(text.find("  words: |\n    a\n    b\n") != std::string::npos);
}
