#include "actors/agent/module_check.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>

#include "actors/agent/child_process.h"
#include "actors/agent/files.h"

namespace regrow {
namespace {

using Clock = std::chrono::steady_clock;

// Prints the first module that cannot be found, one line.
constexpr const char* kScript = R"(
import importlib.util, importlib.machinery, sys
for name in sys.argv[1:]:
    if name in sys.modules: continue
    parts = name.split('.')
    try:
        spec = importlib.util.find_spec(parts[0])
        for i in range(1, len(parts)):
            if spec is None: break
            spec = importlib.machinery.PathFinder.find_spec(
                '.'.join(parts[:i + 1]), spec.submodule_search_locations or [])
    except Exception as e:
        print(name, type(e).__name__ + ': ' + str(e)); break
    if spec is None:
        print(name, 'No module named ' + repr(name)); break
else:
    print('regrow-modules-found')
)";

// What the child wrote until it closed its output; false if it took too long.
bool read_output(int fd, Clock::time_point deadline, std::string& output) {
  constexpr size_t kMost = 64 * 1024;
  char buffer[4096];
  while (true) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd wait = {fd, POLLIN, 0};
    if (left.count() <= 0 || poll(&wait, 1, static_cast<int>(left.count())) == 0) return false;
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return true;
    if (output.size() < kMost) output.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

std::string check_modules(const std::string& interpreter, const std::vector<std::string>& modules,
                          const std::vector<EnvVar>& environment,
                          const std::optional<ChildUser>& user, Duration limit) {
  if (interpreter.empty() || modules.empty()) return "";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::string("cannot make a pipe: ") + strerror(errno);
  Fd reader(ends[0]), writer(ends[1]);

  ChildSpec child;
  child.arguments = {interpreter, "-c", kScript};
  child.arguments.insert(child.arguments.end(), modules.begin(), modules.end());
  for (const EnvVar& variable : environment) {
    child.environment.push_back(variable.name + "=" + variable.value);
  }
  child.descriptors = {{writer.get(), 1}, {writer.get(), 2}};
  child.user = user;
  pid_t pid = spawn_child(child);
  writer = Fd();
  if (pid < 0) {
    return "interpreter " + interpreter + " cannot be run: " + strerror(-pid) +
           "; name an existing one in the recipe";
  }
  std::string output;
  bool answered =
      read_output(reader.get(), Clock::now() + std::chrono::microseconds(limit.us), output);
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!answered) {
    return "interpreter " + interpreter + " did not answer within " +
           std::to_string(limit.us / 1'000'000) + " s when asked for modules";
  }
  while (!output.empty() && output.back() == '\n') output.pop_back();
  if (output.ends_with("regrow-modules-found")) return "";
  std::string line = output.substr(output.rfind('\n') + 1);
  size_t space = line.find(' ');
  for (const std::string& module : modules) {
    if (line.substr(0, space) != module) continue;
    return "interpreter " + interpreter + " cannot import module " + module + ": " +
           line.substr(space + 1) + "; install it for this interpreter or name another one";
  }
  return "interpreter " + interpreter +
         " cannot look for modules: " + (line.empty() ? "it printed nothing" : line);
}

}  // namespace regrow
