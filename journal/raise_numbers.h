// After the end of a journal is lost, its numbers must not be given out again: agents know the jobs
// and epochs that this journal has forgotten.
//
//   auto raised = raise_numbers(journal, {.why = "the end of the journal was lost"});
//
// Any thread, before a controller has the journal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "journal/journal.h"

namespace regrow {

inline constexpr uint64_t kJobsSkipped = 1'000'000;
inline constexpr uint64_t kEpochsSkipped = 1'000;

struct RaiseRequest {
  std::string why;          // of the event's reason
  uint64_t seen_epoch = 0;  // an agent obeys this one; 0 = not known
  Actor by = {};
  Time not_before = {};  // of the event; now if that is later
};

// Appends NumbersRaised to the cluster's history and returns the record. Nothing if there is no
// cluster yet, whose numbers nobody can know.
JournalResult<std::optional<EventRecord>> raise_numbers(Journal& journal, RaiseRequest request);

}  // namespace regrow
