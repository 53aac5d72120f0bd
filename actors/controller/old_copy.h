// The mark on a journal that turned out to be an older copy: some agent obeys a later controller.
//
// Each start raises the epoch by one, so without the mark a few restarts would pass what agents
// have seen, and the copy would rule. It lies in the journal's own directory and goes where that
// goes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace regrow {

struct OldCopy {
  uint64_t seen_epoch = 0;  // what an agent obeys
  std::string reason;       // a sentence
};

// JOURNAL/OLD_COPY: the number, a line break, the reason.
std::string old_copy_file(const std::string& journal_directory);

// On disk before it returns. Empty, or what went wrong.
std::string mark_old_copy(const std::string& journal_directory, const OldCopy& found);
std::optional<OldCopy> read_old_copy(const std::string& journal_directory);
std::string remove_old_copy_mark(const std::string& journal_directory);

// The reason, and what a person can do.
std::string explain(const OldCopy& found, const std::string& journal_directory);

}  // namespace regrow
