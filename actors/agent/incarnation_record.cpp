#include "actors/agent/incarnation_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>

namespace regrow {
namespace {

std::string line_of(JobId job, RankIndex rank, Incarnation incarnation) {
  return std::to_string(job.value) + " " + std::to_string(rank.value) + " " +
         std::to_string(incarnation.value) + "\n";
}

}  // namespace

IncarnationRecord::IncarnationRecord(std::string path) : path_(std::move(path)) {
  std::istringstream lines(read_file(path_).value_or(""));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    JobId job;
    RankIndex rank;
    Incarnation incarnation;
    // The last line may be torn; what it was about has its directory as well.
    if (!(words >> job.value >> rank.value >> incarnation.value)) continue;
    Incarnation& known = highest_[{job, rank}];
    known = std::max(known, incarnation);
  }
  std::string all;
  for (const auto& [slot, incarnation] : highest_)
    all += line_of(slot.first, slot.second, incarnation);
  replace_file(path_, all, 0600);
  file_ = Fd(open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
}

Incarnation IncarnationRecord::highest(JobId job, RankIndex rank) const {
  auto found = highest_.find({job, rank});
  return found == highest_.end() ? Incarnation{} : found->second;
}

void IncarnationRecord::raise(JobId job, RankIndex rank, Incarnation incarnation) {
  Incarnation& known = highest_[{job, rank}];
  if (incarnation <= known) return;
  known = incarnation;
  std::string line = line_of(job, rank, incarnation);
  if (write(file_.get(), line.data(), line.size()) < 0) {
    // Disk full: the directories still tell, and a later load finds them.
  }
}

}  // namespace regrow
