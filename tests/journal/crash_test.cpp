// J-1: what append acknowledged is there after kill -9; what is there is a prefix of what was
// issued.
#include <fcntl.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <mutex>
#include <thread>

#include "tests/journal/journal_helpers.h"

namespace regrow {
namespace {

using namespace testing;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

// Hidden: appends known events for ever and says after each batch which number is acknowledged.
TEST_CASE("child: appends until it is killed", "[.child]") {
  int pipe_fd = std::stoi(getenv("REGROW_TEST_FD"));
  Filler filler(static_cast<uint64_t>(getpid()));
  auto journal = must_open(small_journal(getenv("REGROW_TEST_DIR")));
  for (;;) {
    append_known(*journal, 1 + filler.below(40), 1 + filler.below(20));
    uint64_t acknowledged = journal->last_seq();
    REQUIRE(write(pipe_fd, &acknowledged, sizeof(acknowledged)) == sizeof(acknowledged));
    if (filler.chance(5)) {
      SnapshotBatch snapshots{acknowledged, "test", filler.chance(3), {}, {}};
      snapshots.put.push_back({filler.entity(), std::string(filler.below(5000), 's')});
      must(journal->write_snapshots(snapshots));
    }
  }
}

TEST_CASE("kill -9 loses no acknowledged event, and leaves a prefix", "[crash]") {
  TempDir dir;
  Filler filler(99);
  setenv("REGROW_TEST_DIR", (dir / "j").c_str(), 1);
  uint64_t acknowledged = 0;
  uint64_t grown = 0;
  const char* wanted = getenv("REGROW_TEST_KILLS");
  int kills = wanted ? std::stoi(wanted) : 20;
  for (int round = 0; round < kills; ++round) {
    int ends[2];
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    int inherited = dup(ends[1]);  // without CLOEXEC
    setenv("REGROW_TEST_FD", std::to_string(inherited).c_str(), 1);
    pid_t child = start_child("child: appends until it is killed");
    close(inherited);
    close(ends[1]);

    // The first report starts the clock, so that slow machines kill at work too, not only at
    // start-up.
    bool wait_for_work = round % 5 != 4;
    uint64_t number = 0;
    if (wait_for_work && read(ends[0], &number, sizeof(number)) == sizeof(number))
      acknowledged = number;
    std::this_thread::sleep_for(std::chrono::microseconds(filler.below(120000)));
    kill(child, SIGKILL);
    while (read(ends[0], &number, sizeof(number)) == sizeof(number)) acknowledged = number;
    close(ends[0]);
    int status = wait_for(child);
    REQUIRE(WIFSIGNALED(status));

    auto journal = must_open(small_journal(dir / "j"));
    uint64_t recovered = check_known_prefix(*journal);
    INFO("round " << round << ": acknowledged " << acknowledged << ", recovered " << recovered);
    REQUIRE(recovered >= acknowledged);
    auto mark = must(journal->snapshot_mark());
    REQUIRE(mark.seq <= recovered);
    acknowledged = recovered;
    if (wait_for_work) grown = recovered;
  }
  CHECK(grown > 100);
}

// RocksDB's threads may warn too.
class Warnings {
 public:
  std::function<void(const std::string&)> collector() {
    return [this](const std::string& text) {
      std::lock_guard hold(mutex_);
      texts_.push_back(text);
    };
  }
  std::vector<std::string> texts() {
    std::lock_guard hold(mutex_);
    return texts_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

struct Damaged {
  TempDir dir;
  std::string path = dir / "j";
  Damaged() {
    RocksJournalOptions options;  // a memtable that holds it all: everything is in the log
    options.directory = path;
    options.ballast_bytes = 0;
    auto journal = must_open(options);
    append_known(*journal, 400);
  }
};

TEST_CASE("a torn tail costs the torn event and nothing else", "[crash]") {
  for (int bytes : {1, 7, 40}) {
    Damaged journal;
    std::string log = newest_log(journal.path);
    fs::resize_file(log, fs::file_size(log) - bytes);
    Warnings warnings;
    RocksJournalOptions options;
    options.directory = journal.path;
    options.on_warning = warnings.collector();
    auto opened = must_open(options);
    CHECK(check_known_prefix(*opened) == 399);
    REQUIRE(warnings.texts().size() == 1);
    CHECK_THAT(warnings.texts()[0], Contains(log) && Contains("unfinished write"));
    append_known(*opened, 5);
    CHECK(check_known_prefix(*opened) == 404);
  }
}

TEST_CASE("garbage behind the end is dropped", "[crash]") {
  for (char filling : {'\x33', '\0'}) {
    Damaged journal;
    std::ofstream(newest_log(journal.path), std::ios::app | std::ios::binary)
        << std::string(300, filling);
    CHECK(check_known_prefix(*must_open(small_journal(journal.path))) == 400);
  }
}

TEST_CASE("opening a new journal, and one that was closed, has nothing to report", "[crash]") {
  TempDir dir;
  Warnings warnings;
  RocksJournalOptions options;
  options.directory = dir / "j";
  options.on_warning = warnings.collector();
  for (uint64_t round = 0; round < 4; ++round) {
    auto journal = must_open(options);
    CHECK(check_known_prefix(*journal) == round * 500);
    append_known(*journal, 500, 7);
  }
  CHECK(warnings.texts() == std::vector<std::string>());
}

TEST_CASE("damage in the middle is refused, changes nothing, and says what to do", "[crash]") {
  Damaged journal;
  std::string log = newest_log(journal.path);
  auto size = fs::file_size(log);
  {
    std::fstream file(log, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file << std::string(40, 'Z');
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto opened = RocksJournal::open(small_journal(journal.path));
    REQUIRE_FALSE(opened);
    CHECK(opened.error().fault == JournalFault::corrupt);
    CHECK_THAT(opened.error().message, Contains(journal.path) && Contains("restore a backup") &&
                                           Contains("regrow journal salvage"));
    CHECK(fs::file_size(log) == size);
  }
  uint64_t saved = must(salvage_journal(journal.path, journal.dir / "saved")).events;
  CHECK(saved > 100);
  CHECK(saved < 400);
  CHECK(check_known_prefix(*must_open(small_journal(journal.dir / "saved"))) == saved);
  CHECK(fs::file_size(log) == size);
}

}  // namespace
}  // namespace regrow
