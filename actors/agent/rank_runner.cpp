#include "actors/agent/rank_runner.h"

#include <kj/debug.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "actors/agent/leftovers.h"
#include "supervisors/blame.h"

namespace regrow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAcknowledged = "/acknowledged";

}  // namespace

RankRunner::RankRunner(kj::UnixEventPort& port, kj::Timer& timer, RankRunnerOptions options,
                       OnReport on_report, OnJoin on_join)
    : port_(port),
      timer_(timer),
      options_(std::move(options)),
      on_report_(std::move(on_report)),
      on_join_(std::move(on_join)),
      ranks_directory_(options_.run_directory + "/ranks"),
      record_(options_.state_directory + "/incarnations"),
      ports_(options_.uid, options_.first_port, options_.last_port),
      tasks_(*this) {
  std::string problem = make_directories(ranks_directory_);
  KJ_REQUIRE(problem.empty(), problem);
  // Which boot the directories are of; a simulated host has a boot id of its own.
  std::string boot_file = options_.run_directory + "/boot-id";
  auto previous = read_file(boot_file);
  adopt_all(previous && *previous != options_.boot_id);
  problem = replace_file(boot_file, options_.boot_id);
  KJ_REQUIRE(problem.empty(), problem);
  forget_oldest();
  constructed_ = true;
}

RankRunner::~RankRunner() { reap(); }

void RankRunner::taskFailed(kj::Exception&& exception) { KJ_LOG(ERROR, "rank runner", exception); }

std::string RankRunner::directory_of(const IncarnationKey& key) const {
  return ranks_directory_ + "/" + incarnation_path(key);
}

RankRunner::Entry* RankRunner::find(const IncarnationKey& key) {
  auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second.get();
}

std::vector<RankReport> RankRunner::inventory() const {
  std::vector<RankReport> all;
  for (const auto& [key, entry] : entries_) all.push_back(entry->report);
  return all;
}

RankReport RankRunner::query(const IncarnationKey& key) {
  if (Entry* entry = find(key)) return entry->report;
  RankReport report;
  report.key = key;
  auto bytes = read_file(directory_of(key) + "/exit");
  auto exit = bytes ? decode_exit_file(*bytes) : std::nullopt;
  if (exit) apply_exit(*exit, report);
  return report;
}

// Polite unless forced; the shim does it all, with or without us.
RankReport RankRunner::stop(const StopCommand& command) {
  Entry* entry = find(command.key);
  if (entry == nullptr) {
    RankReport report = query(command.key);
    if (report.state != ProcessState::unknown) return report;
    // Whoever stops what never came must not see it come later (F-1): that is its end.
    if (command.key.incarnation > record_.highest(command.key.job, command.key.rank))
      return burn(command.key, "stopped before it was started here");
    return end_unknown(command.key, true, "nothing is known here of how it ended");
  }
  if (entry->stage == Stage::final || entry->stage == Stage::cleaning) return entry->report;
  std::string packet = "kill";
  if (!command.force) {
    packet = "stop " + command.signal + " " + std::string(to_string(command.scope)) + " " +
             std::to_string(command.grace.us);
  }
  entry->stop_sent = true;
  if (entry->connection.get() != nullptr) {
    send(*entry, packet);
  } else if (entry->pending_stop.empty() || command.force) {
    entry->pending_stop = packet;
  }
  return entry->report;
}

void RankRunner::regroup(const RegroupCommand& command) {
  for (const IncarnationKey& key : command.keys) {
    Entry* entry = find(key);
    if (entry != nullptr && entry->socket)
      entry->socket->regroup(command.generation, command.reason);
  }
}

void RankRunner::go(const GoCommand& command) {
  for (const IncarnationKey& key : command.keys) {
    Entry* entry = find(key);
    if (entry != nullptr && entry->socket) entry->socket->go(command);
  }
}

void RankRunner::stop_all(Duration grace) {
  for (const auto& [key, entry] : entries_) {
    StopCommand command;
    command.key = key;
    command.signal = entry->start.stop_signal;
    command.scope = entry->start.stop_scope;
    command.grace = grace;
    stop(command);
  }
}

bool RankRunner::poll_progress(Entry& entry) {
  auto step = entry.socket ? entry.socket->take_step() : std::nullopt;
  if (step) entry.follower->report(*step);
  return entry.follower->poll();
}

std::vector<ProgressReport> RankRunner::collect_progress(bool all) {
  std::vector<ProgressReport> reports;
  for (auto& [key, entry] : entries_) {
    if (entry->report.state != ProcessState::running || !entry->follower) continue;
    bool moved = poll_progress(*entry);
    if (!moved && !all) continue;
    const ProgressFollower& follower = *entry->follower;
    entry->report.last_step = follower.step();
    ProgressReport report;
    report.key = key;
    report.step = follower.step();
    report.loss = follower.loss();
    report.step_seconds = follower.step_seconds();
    report.output_us = follower.output_us();
    report.step_us = follower.step_us();
    char state = read_process_stat(entry->report.pid).state;
    report.stopped = state == 'T' || state == 't';
    reports.push_back(report);
  }
  return reports;
}

LogChunk RankRunner::read_log(const LogQuery& query) const {
  IncarnationKey key{query.job, query.rank, query.incarnation};
  if (key.incarnation.value == 0) key.incarnation = newest_on_disk(query.job, query.rank);
  LogChunk chunk;
  chunk.incarnation = key.incarnation;
  std::string directory = directory_of(key);
  auto bytes = read_file(directory + "/start");
  auto start = bytes ? decode_start_file(*bytes) : std::nullopt;
  if (!start || (query.stream != "stdout" && query.stream != "stderr")) {
    chunk.at_end = true;
    chunk.next_offset = query.offset;
    chunk.note = "no " + query.stream + " of rank " + std::to_string(key.rank.value) + " of job " +
                 std::to_string(key.job.value) + " is kept on host " + options_.host.value;
    return chunk;
  }
  chunk = LogReader(directory, query.stream, start->log_layout()).chunk(query);
  chunk.incarnation = key.incarnation;
  return chunk;
}

Incarnation RankRunner::newest_on_disk(JobId job, RankIndex rank) const {
  Incarnation newest;
  std::string job_name = std::to_string(job.value);
  std::error_code error;
  for (fs::directory_iterator at(ranks_directory_ + "/" + job_name, error), end;
       !error && at != end; at.increment(error)) {
    auto key = parse_incarnation_path(job_name, at->path().filename().string());
    if (key && key->rank == rank) newest = std::max(newest, key->incarnation);
  }
  return newest;
}

void RankRunner::acknowledge(const IncarnationKey& key) {
  Entry* entry = find(key);
  if (entry == nullptr || entry->stage != Stage::final) return;
  replace_file(directory_of(key) + kAcknowledged, "");
  entry->acknowledged = true;
  if (left_something(entry->report)) return;
  // The shim wipes it, unless somebody was quicker to end the shim.
  if (file_exists(entry->start.temporary_directory)) remove_temporary(*entry);
  entries_.erase(key);
  forget_old(key.job, key.rank);
}

bool RankRunner::acknowledged(const IncarnationKey& key) {
  Entry* entry = find(key);
  return entry != nullptr && entry->acknowledged;
}

// Keeps the newest acknowledged incarnations of a slot.
void RankRunner::forget_old(JobId job, RankIndex rank) {
  std::vector<Incarnation> acknowledged;
  std::string job_name = std::to_string(job.value);
  std::error_code error;
  for (fs::directory_iterator at(ranks_directory_ + "/" + job_name, error), end;
       !error && at != end; at.increment(error)) {
    auto key = parse_incarnation_path(job_name, at->path().filename().string());
    bool over = key && key->rank == rank && find(*key) == nullptr;
    if (over && file_exists(at->path().string() + kAcknowledged)) {
      acknowledged.push_back(key->incarnation);
    }
  }
  std::sort(acknowledged.rbegin(), acknowledged.rend());
  for (size_t i = options_.keep_incarnations; i < acknowledged.size(); ++i) {
    fs::remove_all(directory_of({job, rank, acknowledged[i]}), error);
  }
}

// A limit for a host that runs many small jobs for months.
void RankRunner::forget_oldest() {
  std::vector<std::pair<fs::file_time_type, fs::path>> acknowledged;
  std::error_code error;
  for (fs::directory_iterator job(ranks_directory_, error), end; !error && job != end;
       job.increment(error)) {
    std::error_code inner;
    for (fs::directory_iterator at(job->path(), inner); !inner && at != end; at.increment(inner)) {
      auto key =
          parse_incarnation_path(job->path().filename().string(), at->path().filename().string());
      if (key && find(*key) != nullptr) continue;
      auto time = fs::last_write_time(at->path().string() + kAcknowledged, inner);
      if (!inner) acknowledged.emplace_back(time, at->path());
      inner.clear();
    }
  }
  if (acknowledged.size() <= options_.keep_total) return;
  std::sort(acknowledged.begin(), acknowledged.end());
  for (size_t i = 0; i + options_.keep_total < acknowledged.size(); ++i) {
    fs::remove_all(acknowledged[i].second, error);
    fs::remove(acknowledged[i].second.parent_path(), error);  // the job's, if it was the last
  }
}

}  // namespace regrow
