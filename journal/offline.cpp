#include "journal/offline.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "journal/journal_directory.h"
#include "journal/journal_lock.h"
#include "journal/log_tail.h"
#include "journal/raise_numbers.h"

namespace regrow {

namespace {

namespace fs = std::filesystem;

// The lock of a journal that is there.
JournalResult<JournalLock> take_over(const std::string& directory) {
  auto format = read_format(directory);
  if (!format) return format.error();
  if (*format == 0) {
    return JournalError{JournalFault::refused,
                        directory +
                            ": there is no journal here. Name the state directory of a "
                            "controller that has run, or the journal in it."};
  }
  return JournalLock::take(directory + "/lock");
}

// Under the lock.
JournalResult<CheckedJournal> check(const std::string& directory) {
  CheckedJournal out;
  out.directory = directory;
  LogTail tail = look_at_log_tail(directory + "/db");
  out.unfinished_file = tail.unfinished_bytes > 0 ? tail.file : "";
  out.unfinished_bytes = tail.unfinished_bytes;
  auto journal = RocksJournal::open({.directory = directory, .read_only = true});
  if (!journal) return journal.error();
  auto found = verify(**journal);
  if (!found) {
    JournalError error = found.error();
    if (error.message.find(directory) == std::string::npos)
      error.message = directory + ": the journal is damaged: " + error.message;
    return error;
  }
  out.found = *found;
  for (auto [seq, at] :
       {std::pair{uint64_t{1}, &out.first_at}, {(*journal)->last_seq(), &out.last_at}}) {
    auto event = (*journal)->get(seq);
    if (!event) return event.error();
    if (*event) *at = (*event)->at;
  }
  return out;
}

std::string free_name(const std::string& stem) {
  for (int n = 1;; ++n) {
    std::string name = stem + std::to_string(n);
    std::error_code error;
    if (!fs::exists(fs::symlink_status(name, error))) return name;
  }
}

// root may salvage what belongs to the controller's user.
void give_same_owner(const std::string& from, const std::string& to) {
  struct stat owner;
  if (geteuid() != 0 || stat(from.c_str(), &owner) != 0) return;
  auto give = [&](const std::string& path) {
    [[maybe_unused]] int given = lchown(path.c_str(), owner.st_uid, owner.st_gid);
  };
  give(to);
  std::error_code error;
  for (const auto& entry : fs::recursive_directory_iterator(to, error)) give(entry.path());
}

bool sync_directory(const std::string& path) {
  int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool synced = fd >= 0 && fsync(fd) == 0;
  if (fd >= 0) close(fd);
  return synced;
}

// `fresh` takes the place of `directory`, which is then found at `kept`.
JournalResult<Done> put_in_place(const std::string& fresh, const std::string& directory,
                                 const std::string& kept) {
  auto failed = [&](const std::string& what) {
    return system_error(directory, what + " (the good events are in " + fresh + ")", errno);
  };
  if (renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, directory.c_str(), RENAME_EXCHANGE) == 0) {
    if (rename(fresh.c_str(), kept.c_str()) != 0) return failed("cannot be renamed");
  } else {
    // A file system that cannot exchange two names.
    if (rename(directory.c_str(), kept.c_str()) != 0) return failed("cannot be renamed");
    if (rename(fresh.c_str(), directory.c_str()) != 0) return failed("cannot be put in place");
  }
  std::string parent = fs::path(directory).parent_path().string();
  if (!sync_directory(parent.empty() ? "." : parent)) return failed("cannot be synced");
  return Done{};
}

// Agents know what the lost events gave out.
JournalResult<Done> raise_above(const std::string& fresh, SalvagedJournal& out) {
  auto journal = RocksJournal::open({.directory = fresh});
  if (!journal) return journal.error();
  auto raised = raise_numbers(
      **journal, {.why = "the events behind event " + std::to_string(out.saved.events) +
                         " are lost (regrow journal salvage)",
                  .not_before = out.saved.last_at});
  if (!raised) return raised.error();
  if (*raised) {
    const auto& numbers = std::get<ev::NumbersRaised>((*raised)->event);
    out.next_job = numbers.next_job;
    out.next_epoch = numbers.epoch + 1;
  }
  return Done{};
}

}  // namespace

std::string journal_directory(const std::string& path) {
  std::string directory = path;
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  std::error_code error;
  if (!fs::exists(directory + "/FORMAT", error) && fs::is_directory(directory + "/journal", error))
    directory += "/journal";
  return directory;
}

JournalResult<CheckedJournal> check_journal(const std::string& path) {
  std::string directory = journal_directory(path);
  auto lock = take_over(directory);
  if (!lock) return lock.error();
  return check(directory);
}

JournalResult<SalvagedJournal> salvage(const std::string& path, const std::string& to) {
  std::string directory = journal_directory(path);
  auto lock = take_over(directory);
  if (!lock) return lock.error();
  SalvagedJournal out;
  auto checked = check(directory);
  if (checked) {
    out.was_whole = true;
    out.directory = directory;
    out.saved.events = out.saved.seen_up_to = checked->found.events;
    out.saved.last_at = checked->last_at;
    return out;
  }
  if (checked.error().fault != JournalFault::corrupt && checked.error().fault != JournalFault::io)
    return checked.error();
  out.damage = checked.error().message;

  std::string fresh = to.empty() ? free_name(directory + ".salvaging-") : to;
  auto saved = salvage_journal(directory, fresh);
  if (!saved) return saved.error();
  out.saved = *saved;
  if (auto raised = raise_above(fresh, out); !raised) return raised.error();
  give_same_owner(directory, fresh);
  out.directory = to.empty() ? directory : to;
  out.kept = to.empty() ? free_name(directory + ".damaged-") : directory;
  if (to.empty()) {
    auto placed = put_in_place(fresh, directory, out.kept);
    if (!placed) return placed.error();
  }
  return out;
}

}  // namespace regrow
