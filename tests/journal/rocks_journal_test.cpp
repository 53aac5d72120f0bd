#include "journal/rocks_journal.h"

#include <sys/mount.h>
#include <sys/resource.h>

#include <fstream>
#include <thread>

#include "journal/rocks_store.h"
#include "tests/journal/journal_helpers.h"

namespace regrow {
namespace {

using namespace testing;
using Catch::Matchers::Contains;
namespace fs = std::filesystem;

TEST_CASE("appended events come back, numbered without gaps, over a restart", "[rocks]") {
  TempDir dir;
  {
    auto journal = must_open(small_journal(dir / "j"));
    CHECK(journal->last_seq() == 0);
    std::vector<EventRecord> batch{known_event(1), known_event(2)};
    CHECK(must(journal->append(batch)) == 1);
    CHECK(batch[1].seq == 2);
    std::vector<EventRecord> none;
    CHECK(must(journal->append(none)) == 3);
    append_known(*journal, 3000, 17);
  }
  auto journal = must_open(small_journal(dir / "j"));
  CHECK(journal->last_seq() == 3002);
  CHECK(check_known_prefix(*journal) == 3002);
  CHECK(must(journal->get(2500)) == known_event(2500));
  CHECK_FALSE(must(journal->get(0)));
  CHECK_FALSE(must(journal->get(3003)));
}

TEST_CASE("replay begins and ends where it is told to", "[rocks]") {
  TempDir dir;
  auto journal = must_open(small_journal(dir / "j"));
  append_known(*journal, 50, 7);
  std::vector<uint64_t> seen;
  auto last = must(journal->replay(41, [&](const EventRecord& record) {
    seen.push_back(record.seq);
    return record.seq < 44;
  }));
  CHECK(last == 44);
  CHECK(seen == std::vector<uint64_t>{41, 42, 43, 44});
  CHECK(must(journal->replay(51, [](const EventRecord&) { return true; })) == 50);
}

TEST_CASE("the index knows every entity's events", "[rocks]") {
  TempDir dir;
  auto journal = must_open(small_journal(dir / "j"));
  append_known(*journal, 400, 9);
  std::map<EntityId, std::vector<uint64_t>> expected;
  for (const auto& record : all_events(*journal)) expected[record.entity].push_back(record.seq);

  auto entities = must(journal->entities());
  REQUIRE(entities.size() == expected.size());
  size_t at = 0;
  for (const auto& [entity, numbers] : expected) {
    CHECK(entities[at].entity == entity);
    CHECK(entities[at++].last_seq == numbers.back());
    std::vector<uint64_t> seen;
    must(journal->replay_entity(
        entity, 1, UINT64_MAX,
        [&](const EventRecord& record) {
          seen.push_back(record.seq);
          return true;
        },
        false));
    CHECK(seen == numbers);
    auto newest = must(newest_events(*journal, entity, 3));
    REQUIRE(newest.size() == std::min<size_t>(3, numbers.size()));
    CHECK(newest.back().seq == numbers.back());
  }
  for (const auto& entry : must(journal->entities(100))) CHECK(entry.last_seq <= 100);
}

TEST_CASE("meta entries survive, reserved names are refused", "[rocks]") {
  TempDir dir;
  {
    auto journal = must_open(small_journal(dir / "j"));
    CHECK_FALSE(must(journal->get_meta("cluster_id")));
    must(journal->put_meta("cluster_id", "c-17"));
    auto refused = journal->put_meta(".snapshot_seq", "x");
    REQUIRE_FALSE(refused);
    CHECK(refused.error().fault == JournalFault::refused);
    CHECK_FALSE(journal->failure());
  }
  auto journal = must_open(small_journal(dir / "j"));
  CHECK(must(journal->get_meta("cluster_id")) == "c-17");
}

TEST_CASE("an impossible event is refused and harms nothing", "[rocks]") {
  TempDir dir;
  auto journal = must_open(small_journal(dir / "j"));
  append_known(*journal, 2);
  std::vector<EventRecord> bad{known_event(3), known_event(4)};
  bad[1].entity.path = std::string("job/\0", 5);
  auto refused = journal->append(bad);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().fault == JournalFault::refused);
  append_known(*journal, 2);
  CHECK(check_known_prefix(*journal) == 4);
}

TEST_CASE("a second opener is refused with the holder's pid", "[rocks]") {
  TempDir dir;
  {
    auto first = must_open(small_journal(dir / "j"));
    append_known(*first, 5);
    auto second = RocksJournal::open(small_journal(dir / "j"));
    REQUIRE_FALSE(second);
    CHECK(second.error().fault == JournalFault::in_use);
    CHECK_THAT(second.error().message, Contains("process " + std::to_string(getpid())));
    // Reading a journal that is in use is fine.
    auto options = small_journal(dir / "j");
    options.read_only = true;
    auto reader = must_open(options);
    CHECK(check_known_prefix(*reader) == 5);
    CHECK(reader->append({known_event(6)}).error().fault == JournalFault::refused);
  }
  CHECK(check_known_prefix(*must_open(small_journal(dir / "j"))) == 5);
}

std::map<std::string, std::string> contents_of(const std::string& directory) {
  std::map<std::string, std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    out[entry.path()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return out;
}

TEST_CASE("a newer format is refused before anything is touched", "[rocks]") {
  TempDir dir;
  { append_known(*must_open(small_journal(dir / "j")), 5); }
  std::ofstream(dir / "j/FORMAT") << "regrow journal " << kJournalFormat + 1 << " and more\n";
  auto before = contents_of(dir / "j");
  auto opened = RocksJournal::open(small_journal(dir / "j"));
  REQUIRE_FALSE(opened);
  CHECK(opened.error().fault == JournalFault::newer_format);
  CHECK_THAT(opened.error().message, Contains("format 2") && Contains("Nothing was touched"));
  CHECK(contents_of(dir / "j") == before);
}

TEST_CASE("a directory that holds something else is not taken over", "[rocks]") {
  TempDir dir;
  fs::create_directory(dir / "j");
  std::ofstream(dir / "j/notes.txt") << "mine";
  auto before = contents_of(dir / "j");
  auto opened = RocksJournal::open(small_journal(dir / "j"));
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().message, Contains("not a journal"));
  CHECK(contents_of(dir / "j") == before);
}

TEST_CASE("a directory that cannot be written says whose it must be", "[rocks]") {
  TempDir dir;
  auto open_in = [&](const std::string& name) {
    auto opened = RocksJournal::open(small_journal(dir / name));
    REQUIRE_FALSE(opened);
    CHECK(opened.error().fault == JournalFault::io);
    return opened.error().message;
  };
  CHECK_THAT(open_in("missing/j"),
             Contains("No such file") && Contains("Make the directory above"));
  std::ofstream(dir / "file") << "x";
  CHECK_THAT(open_in("file/j"), Contains("file/j"));

  fs::create_directory(dir / "locked");
  fs::permissions(dir / "locked",
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec);
  fs::permissions(dir.path(), fs::perms::owner_all | fs::perms::others_exec);
  bool is_root = geteuid() == 0;
  if (is_root) REQUIRE(seteuid(65534) == 0);
  auto opened = RocksJournal::open(small_journal(dir / "locked/j"));
  if (is_root) REQUIRE(seteuid(0) == 0);
  REQUIRE_FALSE(opened);
  CHECK_THAT(opened.error().message,
             Contains("Permission denied") && Contains("belong to the user"));
  fs::permissions(dir / "locked", fs::perms::owner_all);
}

TEST_CASE("a record changed, removed or moved behind our back is found", "[rocks]") {
  TempDir dir;
  { append_known(*must_open(small_journal(dir / "j")), 3000, 50); }
  auto tamper = [&](uint64_t seq, auto change) {
    auto store = must(rocks::open_store(small_journal(dir / "j"), rocks::Recovery::strict_middle));
    std::string value;
    auto* events = store->family(rocks::kEvents);
    REQUIRE(store->db->Get(rocksdb::ReadOptions(), events, rocks::event_key(seq), &value).ok());
    change(*store->db, events, value);
  };
  auto problem_of = [&] {
    auto journal = must_open(small_journal(dir / "j"));
    auto checked = verify(*journal);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().fault == JournalFault::corrupt);
    return checked.error().message;
  };
  SECTION("changed") {
    tamper(700, [](auto& db, auto* events, std::string value) {
      value[20] ^= 1;
      REQUIRE(db.Put(rocksdb::WriteOptions(), events, rocks::event_key(700), value).ok());
    });
    CHECK_THAT(problem_of(), Contains("event 700:") && Contains("checksum") && Contains("salvage"));
  }
  SECTION("removed") {
    tamper(700, [](auto& db, auto* events, std::string) {
      REQUIRE(db.Delete(rocksdb::WriteOptions(), events, rocks::event_key(700)).ok());
    });
    CHECK_THAT(problem_of(), Contains("event 700 is missing"));
    // What is before the damage can be kept.
    CHECK(must(salvage_journal(dir / "j", dir / "saved")).events == 699);
    CHECK(check_known_prefix(*must_open(small_journal(dir / "saved"))) == 699);
  }
  SECTION("among the newest: found by opening") {
    tamper(2990, [](auto& db, auto* events, std::string value) {
      REQUIRE(db.Put(rocksdb::WriteOptions(), events, rocks::event_key(2991), value).ok());
    });
    auto opened = RocksJournal::open(small_journal(dir / "j"));
    REQUIRE_FALSE(opened);
    CHECK_THAT(opened.error().message, Contains("event 2991"));
  }
  SECTION("the beginning is gone") {
    tamper(1, [](auto& db, auto* events, std::string) {
      REQUIRE(db.Delete(rocksdb::WriteOptions(), events, rocks::event_key(1)).ok());
    });
    CHECK_THAT(RocksJournal::open(small_journal(dir / "j")).error().message,
               Contains("event 1 is missing"));
  }
}

TEST_CASE("a damaged table file is reported, not skipped", "[rocks]") {
  TempDir dir;
  { append_known(*must_open(small_journal(dir / "j")), 3000, 50); }
  { must_open(small_journal(dir / "j")); }  // replaying the log writes tables
  std::string largest;
  for (const auto& entry : fs::directory_iterator(dir / "j/db")) {
    if (entry.path().extension() != ".sst") continue;
    if (largest.empty() || fs::file_size(entry.path()) > fs::file_size(largest))
      largest = entry.path();
  }
  REQUIRE(!largest.empty());
  std::fstream file(largest, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(largest) / 3));
  file << std::string(64, 'Z');
  file.close();
  auto opened = RocksJournal::open(small_journal(dir / "j"));
  if (opened) {
    auto checked = verify(**opened);
    REQUIRE_FALSE(checked);
    CHECK(checked.error().fault == JournalFault::corrupt);
  } else {
    CHECK(opened.error().fault == JournalFault::corrupt);
  }
}

TEST_CASE("readers go on while events are appended", "[rocks]") {
  TempDir dir;
  auto journal = must_open(small_journal(dir / "j"));
  append_known(*journal, 100, 10);
  std::atomic<bool> stop{false};
  std::atomic<int> problems{0};
  std::thread reader([&] {
    while (!stop) {
      uint64_t upto = journal->last_seq();
      uint64_t seen = 0;
      auto read =
          journal->replay(1, [&](const EventRecord& record) { return record.seq == ++seen; });
      if (!read || seen < upto) ++problems;
    }
  });
  append_known(*journal, 1000, 5);
  stop = true;
  reader.join();
  CHECK(problems == 0);
}

// Hidden: run in a process of its own, whose files cannot grow beyond a limit.
TEST_CASE("child: a failing disk", "[.child]") {
  signal(SIGXFSZ, SIG_IGN);
  rlimit limit{400u << 10, 400u << 10};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  RocksJournalOptions options;
  options.directory = getenv("REGROW_TEST_DIR");
  options.ballast_bytes = 0;
  auto journal = must_open(options);
  JournalResult<uint64_t> result = uint64_t{0};
  while (result) result = journal->append({known_event(journal->last_seq() + 1)});
  CHECK(result.error().fault == JournalFault::io);
  CHECK_FALSE(result.is_no_space());
  REQUIRE(journal->failure());
  uint64_t last = journal->last_seq();
  CHECK(last > 50);
  // Final: nothing is tried any more, the answer stays the same, and what was acknowledged can be
  // read.
  auto again = journal->append({known_event(last + 1)});
  REQUIRE_FALSE(again);
  CHECK(again.error().message == result.error().message);
  CHECK(journal->last_seq() == last);
  CHECK(check_known_prefix(*journal) == last);
  std::ofstream(options.directory + ".acknowledged") << last;
}

TEST_CASE("after a failed write nothing more is written, and what was acknowledged is there",
          "[rocks]") {
  TempDir dir;
  setenv("REGROW_TEST_DIR", (dir / "j").c_str(), 1);
  CHECK(wait_for(start_child("child: a failing disk")) == 0);
  uint64_t acknowledged = 0;
  std::ifstream(dir / "j.acknowledged") >> acknowledged;
  CHECK(acknowledged > 0);
  CHECK(check_known_prefix(*must_open(small_journal(dir / "j"))) >= acknowledged);
}

// Needs a small file system of its own: root, and a kernel that lets us mount one.
TEST_CASE("a full disk is told apart, and the journal works again after it", "[rocks]") {
  TempDir dir;
  fs::create_directory(dir / "disk");
  std::string disk = dir / "disk";
  if (mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=24m") != 0) {
    WARN("not checked: no file system can be mounted here");
    return;
  }
  struct Unmount {
    std::string path;
    ~Unmount() { umount2(path.c_str(), MNT_DETACH); }
  } unmount{disk};

  auto options = small_journal(disk + "/j");
  options.memtable_bytes = 512u << 10;
  options.ballast_bytes = 2u << 20;
  auto journal = must_open(options);
  CHECK(fs::exists(disk + "/j/ballast"));
  JournalResult<uint64_t> result = uint64_t{0};
  while (result) {
    std::vector<EventRecord> batch;
    for (int i = 0; i < 200; ++i) batch.push_back(known_event(journal->last_seq() + 1 + i));
    result = journal->append(batch);
  }
  CHECK(result.is_no_space());
  CHECK_THAT(result.error().message, Contains("no space left") && Contains("Free some space"));
  CHECK(journal->failure()->is_no_space());
  uint64_t acknowledged = journal->last_seq();
  CHECK(check_known_prefix(*journal) == acknowledged);  // still readable

  journal.reset();
  RocksJournal::release_ballast(options.directory);
  CHECK(RocksJournal::has_space(options.directory, 1u << 20));
  CHECK_FALSE(RocksJournal::has_space(options.directory, 64u << 20));
  journal = must_open(options);
  CHECK(check_known_prefix(*journal) >= acknowledged);
  append_known(*journal, 10, 5);
}

}  // namespace
}  // namespace regrow
