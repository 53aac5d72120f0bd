// RankRunner: from a SpawnCommand to a running shim.
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "actors/agent/child_process.h"
#include "actors/agent/leftovers.h"
#include "actors/agent/rank_environment.h"
#include "actors/agent/rank_runner.h"

namespace regrow {
namespace {

std::string describe(const IncarnationKey& key) {
  return "rank/" + std::to_string(key.job.value) + "/" + std::to_string(key.rank.value) +
         " incarnation " + std::to_string(key.incarnation.value);
}

// For an error that says EMFILE: how many there are and how many there may be.
std::string descriptor_numbers() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  std::error_code error;
  size_t used = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end;
       at.increment(error)) {
    ++used;
  }
  std::string text = " (limit " + std::to_string(limit.rlim_cur) + " descriptors";
  if (used > 0) text += ", " + std::to_string(used) + " in use";
  return text + "); raise the agent's limit of open files";
}

std::string error_text(const char* what, int error) {
  std::string text = std::string(what) + ": " + strerror(error);
  if (error == EMFILE || error == ENFILE) text += descriptor_numbers();
  return text;
}

}  // namespace

RankReport RankRunner::spawn(const SpawnCommand& command, const JobSpec& spec) {
  const IncarnationKey& key = command.key;
  if (Entry* known = find(key)) return known->report;
  std::string directory = directory_of(key);
  if (file_exists(directory)) return query(key);  // acknowledged long ago
  Incarnation highest = record_.highest(key.job, key.rank);
  if (key.incarnation <= highest) {
    // A final answer: it will never run here, and whoever asked must not wait for it.
    return end_unknown(key, false,
                       "refused " + describe(key) + ": incarnation " +
                           std::to_string(highest.value) + " of that rank was here already (F-1)");
  }
  // The gate: whoever makes the directory may start the rank, once.
  std::string problem = make_directories(ranks_directory_ + "/" + std::to_string(key.job.value));
  if (problem.empty() && mkdir(directory.c_str(), 0711) != 0) {
    problem = "cannot make " + directory + ": " + strerror(errno);
  }
  record_.raise(key.job, key.rank, key.incarnation);  // a refusal is final as well
  if (!problem.empty()) {
    RankReport refused;
    refused.key = key;
    refused.state = ProcessState::never_started;
    refused.message = problem;
    return refused;
  }
  Entry& entry = *(entries_[key] = std::make_unique<Entry>());
  entry.report.key = key;
  entry.report.state = ProcessState::starting;
  problem = prepare_start(command, spec, entry);
  if (problem.empty()) problem = launch(entry);
  return problem.empty() ? entry.report : never_started(entry, problem);
}

// As whom to start what a job of that user runs here; why not, if it may not.
std::string RankRunner::choose_user(uint32_t uid, uint32_t gid, StartSettings& start) {
  const User& account = user(uid);
  std::string refusal = options_.allowed_users.refusal(
      {uid, account.has_account ? account.name : ""}, geteuid(), options_.host);
  if (!refusal.empty()) return refusal;
  start.uid = uid;
  start.gid = getegid();
  start.change_user = uid != geteuid();
  if (!start.change_user) return "";
  if (!account.has_account)
    return "host " + options_.host.value + " has no account of uid " + std::to_string(uid) +
           "; make one, or submit as a user that it has";
  // A group that the user is not in is not given to it, whoever asks.
  const auto& groups = account.groups;
  bool member = std::find(groups.begin(), groups.end(), gid) != groups.end();
  start.gid = member ? gid : account.gid;
  start.groups = groups;
  return "";
}

// Everything that does not need a process yet: user, directories, environment, start file.
std::string RankRunner::prepare_start(const SpawnCommand& command, const JobSpec& spec,
                                      Entry& entry) {
  StartSettings& start = entry.start;
  if (!spec.interpreter.empty()) start.arguments.push_back(spec.interpreter);
  start.arguments.insert(start.arguments.end(), spec.command.begin(), spec.command.end());
  if (start.arguments.empty()) return "the job has no command";

  std::string problem = choose_user(spec.uid, spec.gid, start);
  if (!problem.empty()) return problem;
  const User& account = user(spec.uid);
  problem = make_temporary_directory(command.key, start);
  if (!problem.empty()) return problem;

  RankHost host;
  host.scope = options_.uid;
  host.host = options_.host;
  host.devices = devices_;
  host.home = account.home;
  host.user = account.name;
  host.temporary_directory = start.temporary_directory;
  host.rank_socket = RankSocket::path_in(directory_of(command.key));
  host.rank_token = RankSocket::make_token();
  host.rank_library = options_.rank_library;
  host.python_directory = options_.python_directory;
  start.environment = build_rank_environment(command, spec, host);
  start.working_directory = spec.working_directory.empty() ? account.home : spec.working_directory;
  start.nofile = spec.nofile;
  start.logs = spec.logs;
  start.stop_signal = spec.stop_signal;
  start.stop_scope = spec.stop_scope;
  start.grace = spec.timeouts.stop_grace;
  start.progress_pattern = spec.progress_pattern;
  problem = replace_file(directory_of(command.key) + "/start", encode_start_file(start), 0600);
  if (problem.empty()) listen_for_reports(entry);
  return problem;
}

// What its start file says is enough, for this agent and the next.
void RankRunner::listen_for_reports(Entry& entry) {
  const StartSettings& start = entry.start;
  const IncarnationKey& key = entry.report.key;
  RankSocketSettings settings;
  settings.directory = directory_of(key);
  settings.name = describe(key);
  settings.token = start.variable("REGROW_TOKEN");
  settings.uid = start.change_user ? start.uid : geteuid();
  settings.gid = start.gid;
  settings.generation =
      static_cast<uint64_t>(atoll(std::string(start.variable("REGROW_GENERATION")).c_str()));
  settings.on_join = [this, key](Generation generation, int64_t step, bool intact) {
    on_join_({key, generation, step, intact});
  };
  if (settings.token.empty()) return;  // started by an agent that knew nothing of this
  entry.socket = std::make_unique<RankSocket>(port_, timer_, std::move(settings));
}

// Named after the rank for whoever looks, unguessable for whoever would be first.
std::string RankRunner::make_temporary_directory(const IncarnationKey& key, StartSettings& start) {
  std::string path = options_.temporary_root + "/regrow-" + std::to_string(key.job.value) + "." +
                     std::to_string(key.rank.value) + "." + std::to_string(key.incarnation.value) +
                     "-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return "cannot make a temporary directory in " + options_.temporary_root + ": " +
           strerror(errno);
  }
  start.temporary_directory = path;
  if (start.change_user && chown(path.c_str(), start.uid, start.gid) != 0) {
    return "cannot give " + path + " to uid " + std::to_string(start.uid) + ": " + strerror(errno);
  }
  return "";
}

std::string RankRunner::launch(Entry& entry) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return error_text("cannot make a socket", errno);
  }
  Fd ours(ends[0]), theirs(ends[1]);
  ChildSpec child;
  child.arguments = {options_.shim, directory_of(entry.report.key)};
  child.descriptors = {{theirs.get(), shim::kFirstClientFd}};
  pid_t pid = spawn_child(child);
  if (pid < 0) return error_text(("cannot run " + options_.shim).c_str(), -pid);
  entry.shim_pid = pid;
  watch(entry, std::move(ours));
  return "";
}

RankReport RankRunner::never_started(Entry& entry, const std::string& why) {
  entry.report.state = ProcessState::never_started;
  entry.report.message = why;
  entry.report.group_gone_us = wall_clock_us();
  entry.stage = Stage::final;
  entry.socket = nullptr;
  replace_file(directory_of(entry.report.key) + "/exit", encode_exit_file(entry.report), 0644,
               true);
  remove_temporary(entry);
  return entry.report;
}

// It never came, and it will not come any more.
RankReport RankRunner::burn(const IncarnationKey& key, const std::string& why) {
  record_.raise(key.job, key.rank, key.incarnation);
  make_directories(directory_of(key));
  Entry& entry = *(entries_[key] = std::make_unique<Entry>());
  entry.report.key = key;
  entry.report.ended_by_us = true;
  return never_started(entry, why);
}

// It or a later one was here, and nothing is known of it: whatever carries its mark is ended.
RankReport RankRunner::end_unknown(const IncarnationKey& key, bool asked_for,
                                   const std::string& why) {
  make_directories(directory_of(key));
  Entry& entry = *(entries_[key] = std::make_unique<Entry>());
  entry.report.key = key;
  entry.report.state = ProcessState::gone;
  entry.report.ended_by_us = asked_for;
  entry.report.message = why;
  if (kill_leftovers(incarnation_marker(options_.uid, key), 0, 0).found == 0)
    entry.report.group_gone_us = wall_clock_us();
  entry.stage = Stage::final;
  replace_file(directory_of(key) + "/exit", encode_exit_file(entry.report), 0644, true);
  end_leftovers_later(entry);
  return entry.report;
}

// Asked once per user: the answer may come from a directory service.
const RankRunner::User& RankRunner::user(uint32_t uid) {
  auto known = users_.find(uid);
  if (known != users_.end() && known->second.has_account) return known->second;
  User account;
  account.name = "uid" + std::to_string(uid);
  account.home = "/";
  passwd entry;
  passwd* found = nullptr;
  char buffer[16384];
  if (getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found != nullptr) {
    account.name = entry.pw_name;
    account.home = entry.pw_dir;
    account.gid = entry.pw_gid;
    account.groups = {entry.pw_gid};
    account.has_account = true;
    gid_t groups[256];
    int count = 256;
    if (getgrouplist(entry.pw_name, entry.pw_gid, groups, &count) >= 0) {
      account.groups.assign(groups, groups + count);
    }
  }
  return users_[uid] = account;
}

}  // namespace regrow
