#include "actors/controller/old_copy.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <sstream>

#include "actors/agent/files.h"

namespace regrow {

std::string old_copy_file(const std::string& journal_directory) {
  return journal_directory + "/OLD_COPY";
}

std::string mark_old_copy(const std::string& journal_directory, const OldCopy& found) {
  return replace_file(old_copy_file(journal_directory),
                      std::to_string(found.seen_epoch) + "\n" + found.reason + "\n", 0644, true);
}

std::optional<OldCopy> read_old_copy(const std::string& journal_directory) {
  std::string file = old_copy_file(journal_directory);
  if (access(file.c_str(), F_OK) != 0) return std::nullopt;
  OldCopy found;
  std::istringstream text(read_file(file).value_or(""));
  text >> found.seen_epoch >> std::ws;
  std::getline(text, found.reason);
  if (found.reason.empty()) found.reason = file + " says that this journal is an old copy";
  return found;
}

std::string remove_old_copy_mark(const std::string& journal_directory) {
  std::string file = old_copy_file(journal_directory);
  if (unlink(file.c_str()) == 0 || errno == ENOENT) return "";
  return "cannot remove " + file + ": " + strerror(errno);
}

std::string explain(const OldCopy& found, const std::string& journal_directory) {
  return found.reason + ". Bring the newest copy of the journal back and remove " +
         old_copy_file(journal_directory) +
         " if it is still there; if there is no newer one, start once with `regrow controller "
         "--recover-epoch` and this state directory";
}

}  // namespace regrow
