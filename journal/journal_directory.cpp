#include "journal/journal_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "journal/rocks_journal.h"

namespace regrow {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMagic = "regrow journal";

class Fd {
 public:
  Fd(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  bool ok() const { return fd_ >= 0; }
  int get() const { return fd_; }

 private:
  int fd_;
};

bool sync_directory(const std::string& path) {
  Fd directory(path, O_RDONLY | O_DIRECTORY);
  return directory.ok() && fsync(directory.get()) == 0;
}

// Whatever else is there: lost+found on a volume of its own is not a reason to refuse.
bool looks_empty(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    auto name = entry.path().filename().string();
    if (name != "lost+found" && name != "lock" && name != "ballast" && name != "FORMAT.new" &&
        name != "space.probe") {
      return false;
    };
  }
  return true;
}

}  // namespace

JournalError system_error(const std::string& path, const std::string& what, int code) {
  std::string message = path + ": " + what + ": " + std::strerror(code) + ".";
  if (code == ENOSPC || code == EDQUOT) {
    return {JournalFault::no_space, message + " Free some space; regrow goes on by itself then."};
  }
  if (code == EACCES || code == EPERM || code == EROFS) {
    message +=
        " The journal's directory must belong to the user who runs regrow, on a writable file "
        "system.";
  } else if (code == ENOENT || code == ENOTDIR) {
    message += " Make the directory above it first, or name another state directory.";
  }
  return {JournalFault::io, message};
}

JournalResult<int> read_format(const std::string& directory) {
  std::string path = directory + "/FORMAT";
  std::ifstream in(path);
  if (!in) {
    int code = errno;
    std::error_code error;
    if (!fs::exists(directory, error) || looks_empty(directory)) return 0;
    if (code != ENOENT) return system_error(path, "cannot be read", code);
    bool has_database = fs::exists(directory + "/db", error);
    return JournalError{has_database ? JournalFault::corrupt : JournalFault::refused,
                        directory +
                            ": holds files, but no FORMAT: this is not a journal of regrow. Name "
                            "another directory, or restore the missing file from a backup."};
  }
  std::string text;
  std::getline(in, text);
  std::string magic = text.substr(0, std::strlen(kMagic));
  std::istringstream rest(text.substr(magic.size()));
  int format = 0;
  if (magic != kMagic || !(rest >> format) || format < 1) {
    return JournalError{JournalFault::corrupt,
                        path + ": says \"" + text.substr(0, 40) + "\" where \"" + kMagic + " " +
                            std::to_string(kJournalFormat) + "\" was expected. " +
                            "Restore the file from a backup."};
  }
  if (format > kJournalFormat) {
    return JournalError{JournalFault::newer_format,
                        directory + ": this journal has format " + std::to_string(format) +
                            ", this regrow knows formats up to " + std::to_string(kJournalFormat) +
                            ". Nothing was touched. Start the newer regrow that wrote it."};
  }
  return format;
}

JournalResult<Done> write_format(const std::string& directory, int format) {
  if (mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return system_error(directory, "cannot be made", errno);
  }
  std::string temporary = directory + "/FORMAT.new";
  std::string text = std::string(kMagic) + " " + std::to_string(format) + "\n";
  {
    Fd file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.ok()) return system_error(temporary, "cannot be made", errno);
    if (write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        fsync(file.get()) != 0) {
      return system_error(temporary, "cannot be written", errno);
    }
  }
  if (rename(temporary.c_str(), (directory + "/FORMAT").c_str()) != 0 ||
      !sync_directory(directory)) {
    return system_error(directory + "/FORMAT", "cannot be put in place", errno);
  }
  return Done{};
}

bool make_ballast(const std::string& directory, uint64_t bytes) {
  std::string path = directory + "/ballast";
  struct stat present;
  if (stat(path.c_str(), &present) == 0 && static_cast<uint64_t>(present.st_size) == bytes)
    return true;

  struct statvfs space;
  if (statvfs(directory.c_str(), &space) != 0) return false;
  if (static_cast<uint64_t>(space.f_bavail) * space.f_frsize < 3 * bytes) return false;
  Fd file(path, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file.ok()) return false;
  if (posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)) != 0) {
    unlink(path.c_str());
    return false;
  }
  return true;
}

void RocksJournal::release_ballast(const std::string& directory) {
  unlink((directory + "/ballast").c_str());
}

bool RocksJournal::has_space(const std::string& directory, uint64_t bytes) {
  std::string path = directory + "/space.probe";
  bool fits = false;
  {
    Fd file(path, O_WRONLY | O_CREAT | O_TRUNC);
    fits = file.ok() && posix_fallocate(file.get(), 0, static_cast<off_t>(bytes)) == 0 &&
           fsync(file.get()) == 0;
  }
  unlink(path.c_str());
  return fits;
}

}  // namespace regrow
