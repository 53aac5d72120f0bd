// Directories, children and contents that the journal's tests share.
#pragma once

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "journal/rocks_journal.h"
#include "tests/catch.h"
#include "tests/journal/random_fill.h"

namespace regrow::testing {

class TempDir {
 public:
  TempDir() {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "regrow-journal-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Event `seq` of the history that every test knows: contents follow from the number alone. Test
// thread.
inline EventRecord known_event(uint64_t seq) {
  static std::map<EntityId, uint64_t> count;  // of entities up to numbers.size()
  static std::vector<uint64_t> numbers;
  auto make = [](uint64_t at) {
    EventRecord record = Filler(at * 7919).record();
    record.seq = at;
    return record;
  };
  while (numbers.size() < seq) numbers.push_back(++count[make(numbers.size() + 1).entity]);
  EventRecord record = make(seq);
  record.n = numbers[seq - 1];
  return record;
}

inline RocksJournalOptions small_journal(const std::string& directory) {
  RocksJournalOptions options;
  options.directory = directory;
  options.memtable_bytes = 64u << 10;  // so that flushes and compactions happen in tests
  options.ballast_bytes = 0;
  return options;
}

inline std::unique_ptr<RocksJournal> must_open(const RocksJournalOptions& options) {
  auto opened = RocksJournal::open(options);
  if (!opened) FAIL(opened.error().message);
  return std::move(*opened);
}

template <class T>
T must(JournalResult<T> result) {
  if (!result) FAIL(result.error().message);
  return std::move(*result);
}

inline void append_known(Journal& journal, uint64_t count, uint64_t per_batch = 1) {
  for (uint64_t done = 0; done < count;) {
    std::vector<EventRecord> batch;
    for (uint64_t i = 0; i < per_batch && done < count; ++i, ++done) {
      batch.push_back(known_event(journal.last_seq() + 1 + i));
      batch.back().seq = 0;
    }
    must(journal.append(batch));
  }
}

inline std::vector<EventRecord> all_events(const Journal& journal) {
  std::vector<EventRecord> out;
  must(journal.replay(1, [&](const EventRecord& record) {
    out.push_back(record);
    return true;
  }));
  return out;
}

// Every event is the known one at its place: nothing lost in between, nothing changed. Returns how
// many.
inline uint64_t check_known_prefix(const Journal& journal) {
  auto events = all_events(journal);
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i] != known_event(i + 1)) FAIL("event " << i + 1 << " is not what was written");
  }
  REQUIRE(events.size() == journal.last_seq());
  return events.size();
}

// Runs a hidden test case of this executable in a fresh process: fork alone would copy RocksDB's
// state without its threads.
inline pid_t start_child(const std::string& test_case) {
  pid_t pid = fork();
  if (pid == 0) {
    execl("/proc/self/exe", "test_journal", test_case.c_str(), nullptr);
    _exit(126);
  }
  REQUIRE(pid > 0);
  return pid;
}

inline int wait_for(pid_t pid) {
  int status = 0;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  return status;
}

// The newest write-ahead log of a journal.
inline std::string newest_log(const std::string& directory) {
  std::string newest;
  for (const auto& entry : std::filesystem::directory_iterator(directory + "/db")) {
    if (entry.path().extension() == ".log") newest = std::max(newest, entry.path().string());
  }
  REQUIRE(!newest.empty());
  return newest;
}

}  // namespace regrow::testing
