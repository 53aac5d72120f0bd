#include "actors/agent/files.h"
#include "actors/agent/incarnation_files.h"
#include "tests/fuzz/targets.h"

namespace regrow::fuzz {

void start_file(std::string_view bytes) {
  auto start = decode_start_file(bytes);
  if (!start) return;
  auto layout = start->log_layout();
  must(layout.segment_bytes >= 4096 && layout.tail_files >= 1, "logs always have room");
  (void)start->variable("REGROW_GENERATION");
  auto again = decode_start_file(encode_start_file(*start));
  must(again.has_value(), "what was read can be written and read again");
  must(again->arguments == start->arguments && again->environment == start->environment,
       "the same command");
  must(again->working_directory == start->working_directory && again->grace == start->grace &&
           again->change_user == start->change_user &&
           again->progress_pattern == start->progress_pattern,
       "the same settings");
}

void pid_file(std::string_view bytes) {
  auto leader = decode_pid_file(bytes);
  if (leader) must(leader->pid != 0, "a leader has a pid");
}

void exit_file(std::string_view bytes) {
  auto exit = decode_exit_file(bytes);
  if (!exit) return;
  RankReport report;
  report.key = {{1}, {2}, {3}};
  apply_exit(*exit, report);
  must(report.key == IncarnationKey{{1}, {2}, {3}}, "an exit file does not say whose it is");
  must(report.state == ProcessState::exited || report.state == ProcessState::never_started ||
           report.state == ProcessState::gone,
       "an exit file is an end");
  for (const std::string* text : {&report.message, &report.last_words, &report.error_line})
    must(valid_utf8(*text) == *text, "what is journaled and shown is UTF-8");

  auto again = decode_exit_file(encode_exit_file(report));
  must(again.has_value(), "what was read can be written and read again");
  RankReport repeated;
  apply_exit(*again, repeated);
  must(repeated.state == report.state && repeated.exit_code == report.exit_code &&
           repeated.signal == report.signal && repeated.pid == report.pid &&
           repeated.ended_by_us == report.ended_by_us,
       "the same end");
}

void rank_path(std::string_view bytes) {
  size_t slash = bytes.find('/');
  if (slash == std::string_view::npos) return;
  auto key = parse_incarnation_path(bytes.substr(0, slash), bytes.substr(slash + 1));
  if (!key) return;
  std::string path = incarnation_path(*key);
  size_t at = path.find('/');
  must(parse_incarnation_path(path.substr(0, at), path.substr(at + 1)) == key,
       "the same incarnation");
}

}  // namespace regrow::fuzz
