#include <filesystem>

#include "actors/agent/checkpoint_scan.h"
#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::TemporaryDirectory;
using testing::write_file;

class Checkpoints {
 public:
  Checkpoints() {
    rule.directory = directory.path();
    rule.shards = "rank_{rank}.pt";
    rule.marker = "COMPLETE";
  }
  void save(int64_t step, uint32_t ranks, bool marker = true) {
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      write_file(file(step, "rank_" + std::to_string(rank) + ".pt"), "state");
    }
    if (marker) write_file(file(step, "COMPLETE"), "");
  }
  std::string file(int64_t step, const std::string& name) const {
    return directory.path() + "/step_" + std::to_string(step) + "/" + name;
  }
  std::vector<CheckpointFound> scan(uint32_t world_size = 8) const {
    std::string error;
    auto found = scan_checkpoints(rule, world_size, error);
    CHECK(error.empty());
    return found;
  }

  TemporaryDirectory directory;
  CheckpointRule rule;
};

TEST_CASE("scenario 01: the newest whole checkpoint, whatever `latest` says") {
  Checkpoints made;
  made.save(100, 8);
  made.save(200, 8);
  made.save(300, 5, false);
  write_file(made.file(300, "rank_4.pt"), "");
  write_file(made.directory.path() + "/latest", "300");
  auto found = made.scan();
  REQUIRE(found.size() == 3);
  CHECK(found[0].step == 300);
  CHECK_FALSE(found[0].complete);
  CHECK(found[0].problem == "shards 4/8 (1 empty), marker missing");
  CHECK(found[0].shards == std::vector<uint32_t>{0, 1, 2, 3});
  CHECK(found[1].step == 200);
  CHECK(found[1].complete);
  CHECK(found[1].marker);
  CHECK(found[1].path == made.directory.path() + "/step_200");
  CHECK(found[1].problem.empty());
  CHECK(std::filesystem::exists(made.file(300, "rank_0.pt")));
}

TEST_CASE("shards 5/8 reads as the scenario wants it") {
  Checkpoints made;
  made.save(300, 5, false);
  CHECK(made.scan()[0].problem == "shards 5/8, marker missing");
}

TEST_CASE("a checkpoint of more ranks is not a checkpoint of these") {
  Checkpoints made;
  made.save(100, 8);
  auto found = made.scan(4);
  CHECK_FALSE(found[0].complete);
  CHECK(found[0].problem == "made by 8 ranks, not 4");
}

TEST_CASE("sizes must be those of the manifest") {
  Checkpoints made;
  made.rule.manifest = "sizes.txt";
  made.save(1, 2);
  made.save(2, 2);
  write_file(made.file(1, "sizes.txt"), "5 rank_0.pt\n5 rank_1.pt\n");
  write_file(made.file(2, "sizes.txt"),
             "5 rank_0.pt\n9 rank_1.pt\n3 gone.bin\n5 ../../etc/passwd\n");
  auto found = made.scan(2);
  CHECK(found[0].problem ==
        "rank_1.pt has 5 of 9 bytes, gone.bin missing, manifest line '5 ../../etc/passwd' is not "
        "SIZE NAME");
  CHECK(found[1].complete);
  std::filesystem::remove(made.file(1, "sizes.txt"));
  CHECK(made.scan(2)[1].problem == "manifest missing");
}

TEST_CASE("one shared file instead of shards, and plain files as checkpoints") {
  Checkpoints made;
  made.rule.shards = "model.pt";
  write_file(made.file(5, "model.pt"), "state");
  write_file(made.file(5, "COMPLETE"), "");
  CHECK(made.scan()[0].complete);
  made.rule.shards = made.rule.marker = "";
  made.rule.entry = "model-{step}.pt";
  write_file(made.directory.path() + "/model-00042.pt", "state");
  write_file(made.directory.path() + "/model-43.pt", "");
  write_file(made.directory.path() + "/model-44.pt.tmp", "state");
  auto found = made.scan();
  REQUIRE(found.size() == 2);
  CHECK(found[0].problem == "empty");
  CHECK(found[1].step == 42);
  CHECK(found[1].complete);
}

TEST_CASE("names that only look like steps") {
  CHECK(match_step("step_{step}", "step_300") == 300);
  CHECK(match_step("step_{step}", "step_") == -1);
  CHECK(match_step("step_{step}", "step_-3") == -1);
  CHECK(match_step("step_{step}", "step_300.tmp") == -1);
  CHECK(match_step("step_{step}", "latest") == -1);
  CHECK(match_step("{step}", "007") == 7);
  CHECK(match_step("a{step}a", "a") == -1);
  CHECK(match_step("{step}", "99999999999999999999") == -1);
}

TEST_CASE("no directory yet is no checkpoint, an unreadable one is an error") {
  CheckpointRule rule;
  std::string error;
  rule.directory = "/nonexistent/regrow";
  CHECK(scan_checkpoints(rule, 1, error).empty());
  CHECK(error.empty());
  rule.directory = "/etc/passwd";
  CHECK(scan_checkpoints(rule, 1, error).empty());
  CHECK(error.find("/etc/passwd") != std::string::npos);
}

TEST_CASE("the newest whole one is reported behind any number of torn ones") {
  Checkpoints made;
  made.save(1, 2);
  for (int step = 2; step < 30; ++step) made.save(step, 1, false);
  auto found = made.scan(2);
  REQUIRE(found.size() == kMostCheckpointsReported);
  CHECK(found.back().step == 1);
  CHECK(found.back().complete);
}

}  // namespace
}  // namespace regrow
