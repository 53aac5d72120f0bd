// The files of one incarnation's directory, as shim_protocol.h lays them out: written and read
// here.
//
// Pure but for the files. Used by the rank runner on its loop; any thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/agent/shim_protocol.h"
#include "supervisors/host_protocol.h"

namespace regrow {

// "JOB/RANK.INC", below ranks/.
std::string incarnation_path(const IncarnationKey& key);
// The key that a job directory's and an incarnation directory's names stand for.
std::optional<IncarnationKey> parse_incarnation_path(std::string_view job, std::string_view rank);

// Everything the start file says. `progress_pattern` is for the agent's own later self.
struct StartSettings {
  std::vector<std::string> arguments;
  std::vector<EnvVar> environment;
  std::string working_directory = "/";
  std::string temporary_directory;
  bool change_user = false;
  uint32_t uid = 0;
  uint32_t gid = 0;
  std::vector<uint32_t> groups;
  uint64_t nofile = 0;
  LogLimits logs;
  std::string stop_signal = "TERM";
  StopScope stop_scope = StopScope::leader;
  Duration grace;
  std::string progress_pattern;

  shim::LogLayout log_layout() const {
    return shim::LogLayout::from_limits(logs.cap_bytes, logs.segment_bytes);
  }
  // The value of a rank's variable, empty if it has none.
  std::string_view variable(std::string_view name) const;
};
std::string encode_start_file(const StartSettings& start);
std::optional<StartSettings> decode_start_file(std::string_view bytes);

// The pid file.
struct LeaderId {
  uint64_t pid = 0;
  uint64_t start_time = 0;
  uint64_t shim_pid = 0;
  int64_t started_us = 0;
};
std::optional<LeaderId> decode_pid_file(std::string_view bytes);

// The exit file.
struct ExitRecord {
  std::map<std::string, std::string, std::less<>> values;
  std::string stdout_words;
  std::string stderr_words;
  bool stdout_cut = false;  // earlier output was left out
  bool stderr_cut = false;
};
std::optional<ExitRecord> decode_exit_file(std::string_view bytes);
std::string encode_exit_file(const RankReport& report);
// The same exit file, of a rank that had left something behind which is gone since `gone_us`.
std::string with_group_gone(const std::string& bytes, int64_t gone_us);

// Puts what the exit file says, and what follows from the last words, into `report`. Keeps its key
// and last_step.
void apply_exit(const ExitRecord& exit, RankReport& report);

// The line that names the failure: the last "SomeError: ..." of stderr, else its last line that is
// not empty, else that of stdout.
std::string find_error_line(std::string_view stderr_words, std::string_view stdout_words);
// Do the words say that an address was already in use?
bool says_address_in_use(std::string_view words);

}  // namespace regrow
