// A rank runner over a directory of its own, with real shims and real processes.
//
//   World world;
//   auto key = world.spawn_shell("echo hello");
//   RankReport end = world.wait_final(key);
#pragma once

#include <kj/async-io.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/agent/rank_runner.h"

namespace regrow::testing {

// Made under /tmp, removed with everything in it.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string shim_path();
void write_file(const std::string& path, const std::string& bytes);
std::string read_text(const std::string& path);
// Is there a process of that number that is not a zombie?
bool alive(uint64_t pid);
size_t open_descriptors();

class World {
 public:
  World();
  ~World();  // ends all ranks

  void start_runner();
  void drop_runner() { runner.reset(); }
  void restart_runner();

  // Lets the event loop run until `done` or the time is over.
  bool wait_until(const std::function<bool()>& done, double seconds = 10);
  void pass(double seconds);
  RankReport wait_final(const IncarnationKey& key, double seconds = 20);
  RankReport wait_running(const IncarnationKey& key);
  PrepareReport prepare(PrepareCommand command);

  SpawnCommand command(uint32_t rank, uint32_t incarnation = 1, uint64_t job = 7) const;
  RankReport spawn(const SpawnCommand& command) { return runner->spawn(command, spec); }
  // /bin/sh -c `script` as rank `rank`.
  IncarnationKey spawn_shell(const std::string& script, uint32_t rank = 0,
                             uint32_t incarnation = 1);
  IncarnationKey spawn_python(const std::string& script, uint32_t rank = 0,
                              uint32_t incarnation = 1);
  void stop(const IncarnationKey& key, double grace_seconds, bool force = false);
  std::string directory_of(const IncarnationKey& key) const;
  std::string log(const IncarnationKey& key, const std::string& stream = "stdout") const;

  TemporaryDirectory directory;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  RankRunnerOptions options;
  JobSpec spec;
  std::unique_ptr<RankRunner> runner;
  std::vector<RankReport> reports;  // by callback, in order

 private:
  std::vector<IncarnationKey> spawned_;
};

}  // namespace regrow::testing
