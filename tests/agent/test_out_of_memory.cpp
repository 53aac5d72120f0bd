// Scenario 05: a rank killed by the kernel for want of memory is told apart from one killed by
// somebody.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tests/agent/support.h"
#include "tests/catch.h"

namespace regrow {
namespace {

using testing::read_text;
using testing::World;

bool put(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

constexpr char kOomScore[] = "/proc/self/oom_score_adj";

// A memory cgroup below this process's own with a low limit, entered for as long as this lives. The
// kernel spares us and the shim: it looks at the size of a process wherever its pages are counted.
// Not `usable` where the machine does not let us make one.
class SmallMemory {
 public:
  SmallMemory() {
    std::istringstream lines(read_text("/proc/self/cgroup"));
    for (std::string line; std::getline(lines, line);) {
      size_t path = line.find(":/");
      if (line.find("memory") != std::string::npos) {
        parent_ = "/sys/fs/cgroup/memory" + line.substr(path + 1);
        limit_ = "/memory.limit_in_bytes";
      } else if (line.starts_with("0::") && parent_.empty()) {
        parent_ = "/sys/fs/cgroup" + line.substr(path + 1);
        limit_ = "/memory.max";
      }
    }
    group_ = parent_ + "/regrow-test-" + std::to_string(getpid());
    usable_ = put(kOomScore, "-1000") && mkdir(group_.c_str(), 0755) == 0 &&
              put(group_ + limit_, "100000000") &&
              put(group_ + "/cgroup.procs", std::to_string(getpid()));
  }
  ~SmallMemory() {
    put(parent_ + "/cgroup.procs", std::to_string(getpid()));
    for (int i = 0; i < 100 && rmdir(group_.c_str()) != 0 && errno == EBUSY; ++i) usleep(10'000);
    put(kOomScore, "0");
  }
  bool usable() const { return usable_; }

 private:
  std::string parent_, limit_, group_;
  bool usable_ = false;
};

TEST_CASE("scenario 05: out of memory is said where the memory cgroup counts it") {
  SmallMemory memory;
  if (!memory.usable()) {
    WARN("no memory cgroup can be made here: not tested");
    return;
  }
  World world;
  auto hungry = world.spawn_python("with open('" + std::string(kOomScore) +
                                       "', 'w') as score: score.write('0')\n"
                                       "x = bytearray(300_000_000)\nprint(len(x))",
                                   0);
  RankReport end = world.wait_final(hungry);
  CHECK(end.signal == SIGKILL);
  CHECK(end.out_of_memory);
  CHECK_FALSE(end.ended_by_us);
  auto killed = world.spawn_shell("kill -9 $$", 1);
  end = world.wait_final(killed);
  CHECK(end.signal == SIGKILL);
  CHECK_FALSE(end.out_of_memory);
}

}  // namespace
}  // namespace regrow
