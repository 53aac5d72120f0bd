#include "tools/regrow/child_keeper.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <thread>

extern char** environ;

namespace regrow::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstPause{50};
constexpr milliseconds kLongestPause{2000};
constexpr seconds kLivedWell{10};  // after such a life the next restart is quick again
constexpr int kExitWrong = 2;
constexpr int kExitRestart = 75;

std::string describe(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (auto& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// posix_spawn's two helpers, freed whatever happens.
class SpawnSetup {
 public:
  SpawnSetup() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    // A session of its own: Ctrl-C in our terminal is for us, we end the others in order.
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

// Parent of a process; 0 if it is gone or a zombie.
pid_t parent_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  auto paren = text.rfind(')');
  char state = 0;
  int parent = 0;
  if (paren == std::string::npos ||
      std::sscanf(text.c_str() + paren + 1, " %c %d", &state, &parent) != 2)
    return 0;
  return state == 'Z' || state == 'X' ? 0 : parent;
}

}  // namespace

std::string last_line(const std::string& path) {
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

void ChildKeeper::add(ChildSpec spec) {
  Child child;
  child.spec = std::move(spec);
  child.due = Clock::now();
  children_.push_back(std::move(child));
}

bool ChildKeeper::start(Child& child) {
  SpawnSetup setup;
  posix_spawn_file_actions_addopen(&setup.actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&setup.actions, 1, child.spec.log.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0640);
  posix_spawn_file_actions_adddup2(&setup.actions, 1, 2);
  posix_spawn_file_actions_addclosefrom_np(&setup.actions, 3);

  std::vector<std::string> arguments{"regrow"};
  arguments.insert(arguments.end(), child.spec.arguments.begin(), child.spec.arguments.end());
  std::vector<std::string> environment;
  for (char** at = environ; *at != nullptr; ++at) environment.emplace_back(*at);
  if (child.starts == 0) {
    environment.insert(environment.end(), child.spec.first_environment.begin(),
                       child.spec.first_environment.end());
  }
  pid_t pid = 0;
  int error = posix_spawn(&pid, "/proc/self/exe", &setup.actions, &setup.attributes,
                          pointers(arguments).data(), pointers(environment).data());
  if (error != 0) {
    on_event_("cannot start " + child.spec.name + ": " + std::strerror(error), true);
    return false;
  }
  child.pid = pid;
  child.started = Clock::now();
  ++child.starts;
  if (!child.spec.pid_file.empty()) {
    std::string draft = child.spec.pid_file + ".new";
    std::ofstream(draft) << pid << "\n";
    std::rename(draft.c_str(), child.spec.pid_file.c_str());
  }
  return true;
}

void ChildKeeper::ended(Child& child, int status) {
  std::string who = child.spec.name + " (pid " + std::to_string(child.pid) + ") ";
  child.pid = 0;
  if (!child.spec.pid_file.empty()) unlink(child.spec.pid_file.c_str());
  if (!restarting_) return;
  if (!ready_ && WIFEXITED(status) && WEXITSTATUS(status) == kExitWrong) {
    on_event_(who + describe(status) + ": " + last_line(child.spec.log) +
                  "\nall of it: " + child.spec.log,
              true);
    return;
  }
  bool lived_well = Clock::now() - child.started >= kLivedWell;
  child.pause = child.pause.count() == 0 || lived_well ? kFirstPause
                                                       : std::min(child.pause * 2, kLongestPause);
  child.due = Clock::now() + child.pause;
  // It ended by itself and thinks that a new start may help: its last words say why.
  bool has_said_why = WIFEXITED(status) && WEXITSTATUS(status) == kExitRestart;
  on_event_(who + describe(status) + (has_said_why ? ": " + last_line(child.spec.log) : "") +
                "; starting it again",
            false);
}

void ChildKeeper::reap() {
  int status = 0;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (auto& child : children_) {
      if (child.pid == pid) ended(child, status);
    }
  }
}

bool ChildKeeper::start_due() {
  if (!restarting_) return true;
  for (auto& child : children_) {
    if (child.pid == 0 && Clock::now() >= child.due && !start(child)) return false;
  }
  return true;
}

ChildKeeper::Clock::time_point ChildKeeper::next_start() const {
  auto next = Clock::now() + std::chrono::hours(1);
  for (const auto& child : children_) {
    if (child.pid == 0 && restarting_) next = std::min(next, child.due);
  }
  return next;
}

void ChildKeeper::signal(const std::string& name_prefix, int signal_number) {
  for (const auto& child : children_) {
    if (child.pid != 0 && child.spec.name.starts_with(name_prefix)) kill(child.pid, signal_number);
  }
}

bool ChildKeeper::running(const std::string& name_prefix) const {
  return std::any_of(children_.begin(), children_.end(), [&](const Child& child) {
    return child.pid != 0 && child.spec.name.starts_with(name_prefix);
  });
}

std::vector<pid_t> ChildKeeper::pids() const {
  std::vector<pid_t> out;
  for (const auto& child : children_) {
    if (child.pid != 0) out.push_back(child.pid);
  }
  return out;
}

std::vector<pid_t> descendants() {
  std::multimap<pid_t, pid_t> children;  // parent -> child
  if (DIR* proc = opendir("/proc")) {
    while (dirent* entry = readdir(proc)) {
      pid_t pid = std::atoi(entry->d_name);
      if (pid <= 0) continue;
      if (pid_t parent = parent_of(pid); parent > 0) children.emplace(parent, pid);
    }
    closedir(proc);
  }
  std::vector<pid_t> found{getpid()};
  std::set<pid_t> seen{getpid()};
  for (size_t i = 0; i < found.size(); ++i) {
    auto [begin, end] = children.equal_range(found[i]);
    for (auto at = begin; at != end; ++at) {
      if (seen.insert(at->second).second) found.push_back(at->second);
    }
  }
  found.erase(found.begin());
  return found;
}

size_t kill_descendants(milliseconds limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    auto left = descendants();
    if (left.empty()) return 0;
    for (pid_t pid : left) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (std::chrono::steady_clock::now() >= deadline) return descendants().size();
    std::this_thread::sleep_for(milliseconds(5));
  }
}

}  // namespace regrow::cli
