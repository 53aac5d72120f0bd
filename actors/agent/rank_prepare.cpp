// RankRunner: is this host ready for a generation? Slow file systems and interpreters answer on
// threads.
#include <thread>

#include "actors/agent/checkpoint_scan.h"
#include "actors/agent/module_check.h"
#include "actors/agent/rank_runner.h"

namespace regrow {
namespace {

constexpr int kMostChecks = 16;  // threads that may hang in a dead file system at one time

std::vector<EnvVar> check_environment(const PrepareCommand& command, const std::string& home) {
  std::vector<EnvVar> environment = command.environment;
  environment.push_back({"HOME", home, "default"});
  environment.push_back({"PATH", "/usr/local/bin:/usr/bin:/bin", "default"});
  environment.push_back({"LANG", "C.UTF-8", "default"});
  return environment;
}

std::string cache_key(const PrepareCommand& command) {
  std::string key = std::to_string(command.uid) + " " + command.interpreter;
  for (const std::string& module : command.modules) key += "\n" + module;
  for (const EnvVar& variable : command.environment)
    key += "\n" + variable.name + "=" + variable.value;
  return key;
}

}  // namespace

kj::Promise<PrepareReport> RankRunner::prepare(PrepareCommand command) {
  PrepareReport report;
  report.job = command.job;
  report.generation = command.generation;
  report.attempt = command.attempt;
  report.address = options_.address;
  if (command.want_port) {
    report.port = ports_.lease(command.job, command.generation, command.attempt,
                               command.avoid_ports, report.error);
    if (!report.error.empty()) return report;
  }
  std::string modules_key = cache_key(command);
  if (modules_found_.contains(modules_key)) command.modules.clear();
  StartSettings start;  // the check runs as the ranks will
  if (!command.modules.empty()) report.error = choose_user(command.uid, command.gid, start);
  if (!report.error.empty()) return report;
  std::optional<ChildUser> as;
  if (start.change_user) as = ChildUser{start.uid, start.gid, start.groups};
  if (command.modules.empty() && command.checkpoint.directory.empty()) return report;
  if (*running_checks_ >= kMostChecks) {
    report.error = std::to_string(kMostChecks) + " earlier checks on host " + options_.host.value +
                   " still wait for a file system";
    return report;
  }

  auto answer = kj::newPromiseAndCrossThreadFulfiller<PrepareReport>();
  // Shared only because a thread's callable must be movable without exceptions, which kj::Own is
  // not.
  using Fulfiller = kj::Own<kj::CrossThreadPromiseFulfiller<PrepareReport>>;
  auto fulfiller = std::make_shared<Fulfiller>(kj::mv(answer.fulfiller));
  std::thread([fulfiller, command, report,
               environment = check_environment(command, user(command.uid).home), as,
               limit = options_.module_check_limit]() mutable {
    report.error = check_modules(command.interpreter, command.modules, environment, as, limit);
    if (report.error.empty()) {
      report.checkpoints = scan_checkpoints(command.checkpoint, command.world_size, report.error);
    }
    (*fulfiller)->fulfill(kj::mv(report));
  }).detach();
  ++*running_checks_;
  // The check's own end is waited for apart from the answer: a late one still frees its place.
  auto forked = answer.promise
                    .then([running = running_checks_](PrepareReport done) {
                      --*running;
                      return done;
                    })
                    .fork();
  tasks_.add(forked.addBranch().ignoreResult());
  std::string late = "host " + options_.host.value + " did not finish its checks within " +
                     std::to_string(options_.prepare_limit.us / 1'000'000) + " s";
  if (!command.checkpoint.directory.empty()) {
    late += "; does " + command.checkpoint.directory + " answer?";
  }
  return forked.addBranch()
      .then([this, modules_key](PrepareReport done) {
        if (done.error.empty()) modules_found_.insert(modules_key);
        return done;
      })
      .exclusiveJoin(timer_.afterDelay(options_.prepare_limit.us * kj::MICROSECONDS)
                         .then([report, late]() mutable {
                           report.error = late;
                           return kj::mv(report);
                         }));
}

}  // namespace regrow
