#include "supervisors/checkpoint.h"

#include "tests/catch.h"

using namespace regrow;

namespace {

CheckpointFound found(int64_t step, bool complete, std::vector<uint32_t> shards, bool marker,
                      std::string problem = "") {
  CheckpointFound f;
  f.step = step;
  f.path = "/ckpt/step_" + std::to_string(step);
  f.complete = complete;
  f.marker = marker;
  f.shards = std::move(shards);
  f.problem = std::move(problem);
  return f;
}

PrepareReport saw(std::vector<CheckpointFound> checkpoints) {
  PrepareReport r;
  r.checkpoints = std::move(checkpoints);
  return r;
}

CheckpointRule rule_of(StorageKind storage) {
  CheckpointRule rule;
  rule.directory = "/ckpt";
  rule.storage = storage;
  rule.shards = "rank_{rank}.pt";
  rule.marker = "COMPLETE";
  return rule;
}

const HostName h1{"h1"}, h2{"h2"}, h3{"h3"};

}  // namespace

TEST_CASE("the newest complete step is chosen, torn ones are named", "[checkpoint]") {
  auto point = choose_resume_point(
      rule_of(StorageKind::shared), {h1, h1, h2, h2},
      {{h1, saw({found(300, false, {0, 1}, false, "shards 2/4, marker missing"),
                 found(200, true, {0, 1, 2, 3}, true), found(100, true, {0, 1, 2, 3}, true)})}});
  CHECK(point.step == 200);
  CHECK(point.path == "/ckpt/step_200");
  REQUIRE(point.rejected.size() == 1);
  CHECK(point.rejected[0] == "step_300 rejected: shards 2/4, marker missing");
}

TEST_CASE("without a complete checkpoint it starts from the beginning", "[checkpoint]") {
  CHECK(choose_resume_point(rule_of(StorageKind::shared), {h1}, {}).step == -1);
  auto point = choose_resume_point(rule_of(StorageKind::shared), {h1},
                                   {{h1, saw({found(5, false, {}, true)})}});
  CHECK(point.step == -1);
  CHECK(point.path == "");
  CHECK(point.rejected.size() == 1);
}

TEST_CASE("host-local shards must lie where their ranks run", "[checkpoint]") {
  auto rule = rule_of(StorageKind::host_local);
  std::map<HostName, PrepareReport> reports{
      {h1, saw({found(20, false, {0, 1}, true), found(10, false, {0, 1}, true)})},
      {h2, saw({found(20, false, {2}, false), found(10, false, {2, 3}, false)})}};
  auto point = choose_resume_point(rule, {h1, h1, h2, h2}, reports);
  CHECK(point.step == 10);
  CHECK(point.rejected ==
        std::vector<std::string>{"step_20 rejected: shards 3/4 where their ranks run"});
  // All shards are somewhere, but rank 1 has moved away from its own.
  CHECK(choose_resume_point(rule, {h1, h2, h2, h2}, reports).step == -1);
  CHECK(choose_resume_point(rule, {h1, h1, h3, h3}, reports).step == -1);
}

TEST_CASE("host-local checkpoints need a marker on one of the hosts, if the rule names one",
          "[checkpoint]") {
  auto rule = rule_of(StorageKind::host_local);
  std::map<HostName, PrepareReport> reports{{h1, saw({found(10, false, {0}, false)})},
                                            {h2, saw({found(10, false, {1}, false)})}};
  auto point = choose_resume_point(rule, {h1, h2}, reports);
  CHECK(point.step == -1);
  CHECK(point.rejected == std::vector<std::string>{"step_10 rejected: marker missing"});
  rule.marker.clear();
  CHECK(choose_resume_point(rule, {h1, h2}, reports).step == 10);
}

TEST_CASE("a host-local checkpoint that is not one shard per rank must be whole on every host",
          "[checkpoint]") {
  auto rule = rule_of(StorageKind::host_local);
  rule.shards = "model.pt";
  std::map<HostName, PrepareReport> reports{
      {h1, saw({found(10, true, {}, true)})},
      {h2, saw({found(10, false, {}, false, "marker missing")})}};
  auto point = choose_resume_point(rule, {h1, h2}, reports);
  CHECK(point.step == -1);
  CHECK(point.rejected == std::vector<std::string>{"step_10 rejected: marker missing on h2"});
  CHECK(choose_resume_point(rule, {h1, h1}, reports).step == 10);
  rule = rule_of(StorageKind::host_local);
  rule.manifest = "sizes.txt";  // lists the files of all ranks: only to be judged where all are
  CHECK(choose_resume_point(rule, {h1, h2}, reports).step == -1);
}
