#include "actors/agent/incarnation_files.h"

#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>

#include "actors/agent/files.h"

namespace regrow {
namespace {

template <class T>
bool parse_number(std::string_view text, T& out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

void add_record(std::string& bytes, std::string_view key, std::string_view value) {
  bytes.append(key).push_back('\0');
  bytes.append(value).push_back('\0');
}

// The next NUL-ended string; nothing at the end.
std::optional<std::string_view> take_string(std::string_view& bytes) {
  size_t end = bytes.find('\0');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view text = bytes.substr(0, end);
  bytes.remove_prefix(end + 1);
  return text;
}

std::optional<std::string_view> take_line(std::string_view& bytes) {
  size_t end = bytes.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view line = bytes.substr(0, end);
  bytes.remove_prefix(end + 1);
  return line;
}

void set_start_value(StartSettings& start, std::string_view key, std::string_view value) {
  if (key == "arg") start.arguments.emplace_back(value);
  if (key == "env") {
    size_t equals = value.find('=');
    if (equals != std::string_view::npos) {
      start.environment.push_back(
          {std::string(value.substr(0, equals)), std::string(value.substr(equals + 1)), ""});
    }
  }
  if (key == "cwd") start.working_directory = value;
  if (key == "tmp") start.temporary_directory = value;
  if (key == "uid") start.change_user = parse_number(value, start.uid);
  if (key == "gid") parse_number(value, start.gid);
  if (key == "group") parse_number(value, start.groups.emplace_back());
  if (key == "nofile") parse_number(value, start.nofile);
  if (key == "cap_bytes") parse_number(value, start.logs.cap_bytes);
  if (key == "segment_bytes") parse_number(value, start.logs.segment_bytes);
  if (key == "stop_signal") start.stop_signal = value;
  if (key == "stop_scope") from_string(value, start.stop_scope);
  if (key == "grace_us") parse_number(value, start.grace.us);
  if (key == "progress_pattern") start.progress_pattern = value;
}

// "LENGTH" or "LENGTH cut", then that many bytes.
bool take_words(std::string_view value, std::string_view& bytes, std::string& words, bool& cut) {
  size_t space = value.find(' ');
  cut = space != std::string_view::npos;
  size_t length = 0;
  if (!parse_number(value.substr(0, space), length) || length > bytes.size()) return false;
  words = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return true;
}

std::string whole_lines(std::string_view words, bool cut) {
  size_t newline = words.find('\n');
  // A single line longer than what is kept stays as it is: part of it is better than nothing.
  if (cut && newline + 1 < words.size()) words.remove_prefix(newline + 1);
  return valid_utf8(words);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    size_t end = text.find_first_of("\r\n");
    lines.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return lines;
}

// At most `limit` bytes, and no character of UTF-8 cut in two.
std::string shortened(std::string_view text, size_t limit) {
  size_t end = std::min(text.size(), limit);
  while (end < text.size() && end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80)
    --end;
  return std::string(text.substr(0, end));
}

std::string_view last_line(std::string_view text) {
  auto lines = lines_of(text);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    size_t first = line->find_first_not_of(" \t");
    if (first != std::string_view::npos) return line->substr(first);
  }
  return {};
}

}  // namespace

std::string incarnation_path(const IncarnationKey& key) {
  return std::to_string(key.job.value) + "/" + std::to_string(key.rank.value) + "." +
         std::to_string(key.incarnation.value);
}

std::optional<IncarnationKey> parse_incarnation_path(std::string_view job, std::string_view rank) {
  IncarnationKey key;
  size_t dot = rank.find('.');
  if (dot == std::string_view::npos || !parse_number(job, key.job.value) ||
      !parse_number(rank.substr(0, dot), key.rank.value) ||
      !parse_number(rank.substr(dot + 1), key.incarnation.value)) {
    return std::nullopt;
  }
  return key;
}

std::string_view StartSettings::variable(std::string_view name) const {
  for (const EnvVar& variable : environment) {
    if (variable.name == name) return variable.value;
  }
  return {};
}

std::string encode_start_file(const StartSettings& start) {
  std::string bytes(shim::kStartMagic, sizeof shim::kStartMagic);
  auto add = [&bytes](std::string_view key, std::string_view value) {
    add_record(bytes, key, value);
  };
  for (const std::string& argument : start.arguments) add("arg", argument);
  for (const EnvVar& variable : start.environment) add("env", variable.name + "=" + variable.value);
  add("cwd", start.working_directory);
  if (!start.temporary_directory.empty()) add("tmp", start.temporary_directory);
  if (start.change_user) {
    add("uid", std::to_string(start.uid));
    add("gid", std::to_string(start.gid));
    for (uint32_t group : start.groups) add("group", std::to_string(group));
  }
  add("nofile", std::to_string(start.nofile));
  add("cap_bytes", std::to_string(start.logs.cap_bytes));
  add("segment_bytes", std::to_string(start.logs.segment_bytes));
  add("stop_signal", start.stop_signal);
  add("stop_scope", to_string(start.stop_scope));
  add("grace_us", std::to_string(start.grace.us));
  add("progress_pattern", start.progress_pattern);
  add("end", "");
  return bytes;
}

std::optional<StartSettings> decode_start_file(std::string_view bytes) {
  if (take_string(bytes) != std::string_view(shim::kStartMagic)) return std::nullopt;
  StartSettings start;
  while (true) {
    auto key = take_string(bytes);
    auto value = key ? take_string(bytes) : std::nullopt;
    if (!value) return std::nullopt;
    if (*key == "end") return start;
    set_start_value(start, *key, *value);
  }
}

std::optional<LeaderId> decode_pid_file(std::string_view bytes) {
  LeaderId leader;
  std::string text(bytes.substr(0, 200));
  int count = sscanf(text.c_str(), "%" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNd64, &leader.pid,
                     &leader.start_time, &leader.shim_pid, &leader.started_us);
  if (count < 2 || leader.pid == 0) return std::nullopt;
  return leader;
}

std::optional<ExitRecord> decode_exit_file(std::string_view bytes) {
  if (take_line(bytes) != std::string_view(shim::kExitMagic)) return std::nullopt;
  ExitRecord exit;
  while (auto line = take_line(bytes)) {
    size_t space = line->find(' ');
    std::string_view key = line->substr(0, space);
    std::string_view value = space == std::string_view::npos ? "" : line->substr(space + 1);
    if (key == "stdout") {
      if (!take_words(value, bytes, exit.stdout_words, exit.stdout_cut)) return std::nullopt;
    } else if (key == "stderr") {
      if (!take_words(value, bytes, exit.stderr_words, exit.stderr_cut)) return std::nullopt;
    } else {
      exit.values[std::string(key)] = value;
    }
  }
  if (!exit.values.contains("state")) return std::nullopt;
  return exit;
}

std::string encode_exit_file(const RankReport& report) {
  std::string bytes = std::string(shim::kExitMagic) + "\n";
  auto add = [&bytes](const char* key, const std::string& value) {
    bytes += std::string(key) + " " + value + "\n";
  };
  add("state", std::string(to_string(report.state)));
  add("code", std::to_string(report.exit_code));
  add("signal", std::to_string(report.signal));
  add("ended_by_us", std::to_string(report.ended_by_us));
  add("forced", std::to_string(report.forced));
  add("out_of_memory", std::to_string(report.out_of_memory));
  add("pid", std::to_string(report.pid));
  add("start_time", std::to_string(report.start_time));
  add("started_us", std::to_string(report.started_us));
  add("leader_ended_us", std::to_string(report.leader_ended_us));
  add("group_gone_us", std::to_string(report.group_gone_us));
  std::string message = report.message;  // one line
  std::replace(message.begin(), message.end(), '\n', ' ');
  add("message", message);
  add("stdout", "0");
  add("stderr", std::to_string(report.last_words.size()));
  return bytes + report.last_words;
}

std::string with_group_gone(const std::string& bytes, int64_t gone_us) {
  // The header comes before anything that the rank itself wrote.
  const std::string unknown = "\ngroup_gone_us 0\n";
  size_t at = bytes.find(unknown);
  if (at == std::string::npos) return bytes;
  std::string line = "\ngroup_gone_us " + std::to_string(gone_us) + "\n";
  return bytes.substr(0, at) + line + bytes.substr(at + unknown.size());
}

void apply_exit(const ExitRecord& exit, RankReport& report) {
  auto number = [&exit](std::string_view key, auto& out) {
    auto found = exit.values.find(key);
    if (found != exit.values.end()) parse_number(std::string_view(found->second), out);
  };
  auto flag = [&exit](std::string_view key) {
    auto found = exit.values.find(key);
    return found != exit.values.end() && found->second == "1";
  };
  report.state = ProcessState::exited;
  from_string(exit.values.find("state")->second, report.state);
  bool is_end = report.state == ProcessState::exited || report.state == ProcessState::gone ||
                report.state == ProcessState::never_started;
  if (!is_end) report.state = ProcessState::exited;  // whatever it says: an exit file is an end
  number("code", report.exit_code);
  number("signal", report.signal);
  number("pid", report.pid);
  number("start_time", report.start_time);
  number("started_us", report.started_us);
  number("leader_ended_us", report.leader_ended_us);
  number("group_gone_us", report.group_gone_us);
  report.ended_by_us = flag("ended_by_us");
  report.forced = flag("forced");
  report.out_of_memory = flag("out_of_memory");
  auto message = exit.values.find("message");
  if (message != exit.values.end()) report.message = valid_utf8(message->second);

  std::string errors = whole_lines(exit.stderr_words, exit.stderr_cut);
  std::string output = whole_lines(exit.stdout_words, exit.stdout_cut);
  bool failed = report.exit_code != 0 || report.signal != 0;
  report.last_words = last_line(errors).empty() ? output : errors;
  report.error_line = failed ? find_error_line(errors, output) : "";
  report.bind_failed = failed && (says_address_in_use(errors) || says_address_in_use(output));
}

std::string find_error_line(std::string_view stderr_words, std::string_view stdout_words) {
  // As Python prints it, with torch's "[rank3]: " before it or not.
  static const re2::RE2 pattern(
      R"(^(?:\[\w+\]:?\s*)?((?:[A-Za-z_]\w*\.)*\w*(?:Error|Exception|Interrupt|Exit|Timeout|Fault)(?::.*)?|)"
      R"(Fatal Python error:.*|terminate called after.*)$)");
  constexpr size_t kLongest = 500;
  for (std::string_view words : {stderr_words, stdout_words}) {
    auto lines = lines_of(words);
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
      re2::StringPiece text(line->data(), line->size());
      re2::StringPiece found;
      if (re2::RE2::FullMatch(text, pattern, &found)) {
        return shortened({found.data(), found.size()}, kLongest);
      }
    }
  }
  std::string_view line = last_line(stderr_words);
  if (line.empty()) line = last_line(stdout_words);
  return shortened(line, kLongest);
}

bool says_address_in_use(std::string_view words) {
  for (const char* text : {"Address already in use", "address already in use", "EADDRINUSE",
                           "Errno 98", "errno: 98"}) {
    if (words.find(text) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace regrow
