// Keeps child processes running: starts them, starts them again when they die, ends them.
//
// Re-executes this very program with other arguments. Children are told to end when their parent
// dies
// (`--parent`, see service_commands.cpp), so even kill -9 of the parent leaves nothing.
//
//   ChildKeeper keeper(on_event);
//   keeper.add({.name = "controller", .arguments = {"controller", ...}, .log = dir +
//   "/controller.log"}); loop: keeper.reap(); keeper.start_due(); poll(... keeper.next_start() ...)
//
// Main's thread only: the kernel's death signal is tied to the thread that spawned.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace regrow::cli {

struct ChildSpec {
  std::string name;                            // "controller", "agent h1": for messages
  std::vector<std::string> arguments;          // after the program's name
  std::string log;                             // stdout and stderr are appended here
  std::string pid_file;                        // written at each start; empty = none
  std::vector<std::string> first_environment;  // NAME=value, for the first start only
};

class ChildKeeper {
 public:
  using Clock = std::chrono::steady_clock;
  // "agent h1 (pid 7) was killed by signal 9; starting it again". `fatal` = it cannot work: not
  // started again.
  using OnEvent = std::function<void(const std::string& text, bool fatal)>;

  explicit ChildKeeper(OnEvent on_event) : on_event_(std::move(on_event)) {}

  void add(ChildSpec spec);

  // Takes the status of every child that has ended, orphans that came to us included.
  void reap();
  // Starts what is due. Returns false, with the reason told, if the system would not.
  bool start_due();
  // When start_due() is due next; far in the future if nothing waits.
  Clock::time_point next_start() const;

  // An exit with code 2 (wrong options, unusable directory) is fatal until this is called.
  void all_ready() { ready_ = true; }

  // From now on nothing is started again.
  void stop_restarting() { restarting_ = false; }
  void signal(const std::string& name_prefix, int signal_number);
  // Is one whose name begins so still running?
  bool running(const std::string& name_prefix) const;
  std::vector<pid_t> pids() const;

 private:
  struct Child {
    ChildSpec spec;
    pid_t pid = 0;  // 0 = not running
    Clock::time_point started;
    Clock::time_point due;
    std::chrono::milliseconds pause{0};
    int starts = 0;
  };

  bool start(Child& child);
  void ended(Child& child, int status);

  OnEvent on_event_;
  std::vector<Child> children_;
  bool restarting_ = true;
  bool ready_ = false;
};

// What a log ends with.
std::string last_line(const std::string& path);

// Every process below this one, however deep. Zombies do not count. Complete only if orphans come
// to us (PR_SET_CHILD_SUBREAPER).
std::vector<pid_t> descendants();

// KILL to all of them until none is left or `limit` is over. Returns how many are left.
size_t kill_descendants(std::chrono::milliseconds limit);

}  // namespace regrow::cli
