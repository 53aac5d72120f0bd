// What people do with a journal that no controller has open: check it, and save what is good of a
// damaged one.
//
//   auto checked = check_journal("/var/lib/regrow/journal");
//   if (!checked) return fail(checked.error().message);
//
// Both take the journal's lock, so that no controller can start meanwhile. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "journal/journal.h"
#include "journal/rocks_journal.h"

namespace regrow {

// The journal that a person means by this path: itself, or the one in a controller's state
// directory.
std::string journal_directory(const std::string& path);

struct CheckedJournal {
  std::string directory;
  JournalCheck found;
  Time first_at;
  Time last_at;
  // The end of the log is an unfinished write, which the next start drops: nobody was told of it.
  std::string unfinished_file;
  uint64_t unfinished_bytes = 0;
};
// Reads everything and changes nothing. Damage is an error of kind `corrupt`.
JournalResult<CheckedJournal> check_journal(const std::string& path);

struct SalvagedJournal {
  std::string directory;  // where the good events are now
  std::string kept;       // the damaged journal as it was
  std::string damage;     // in words
  Salvaged saved;
  uint64_t next_job = 0;    // far above all that the lost events gave out (raise_numbers.h);
  uint64_t next_epoch = 0;  // 0 = it knows no cluster, or nothing was done
  bool was_whole = false;   // nothing was damaged, nothing was done
};
// Puts a journal of the events before the damage in the damaged one's place, which is kept beside
// it under another name; or with `to` leaves it where it is and makes the new one there.
JournalResult<SalvagedJournal> salvage(const std::string& path, const std::string& to = {});

}  // namespace regrow
