#include "supervisors/blame.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace regrow {
namespace {

constexpr int kIll = 4, kTrap = 5, kAbrt = 6, kBus = 7, kFpe = 8, kKill = 9, kSegv = 11, kSys = 31;

bool is_own_fault(int signal) {
  return signal == kIll || signal == kTrap || signal == kAbrt || signal == kBus || signal == kFpe ||
         signal == kSegv || signal == kSys;
}

// Numbers and addresses differ from run to run; the rest of an error line names the failure.
std::string normalized(const std::string& line) {
  std::string out;
  bool in_number = false;
  for (char c : line) {
    bool digit = c >= '0' && c <= '9';
    if (digit && !in_number) out += '#';
    if (!digit) out += c;
    in_number = digit;
    if (out.size() >= 200) break;
  }
  return out;
}

}  // namespace

std::string signal_name(int signal) {
  static constexpr std::array<std::pair<int, std::string_view>, 16> kNames{{{1, "SIGHUP"},
                                                                            {2, "SIGINT"},
                                                                            {3, "SIGQUIT"},
                                                                            {kIll, "SIGILL"},
                                                                            {kTrap, "SIGTRAP"},
                                                                            {kAbrt, "SIGABRT"},
                                                                            {kBus, "SIGBUS"},
                                                                            {kFpe, "SIGFPE"},
                                                                            {kKill, "SIGKILL"},
                                                                            {10, "SIGUSR1"},
                                                                            {kSegv, "SIGSEGV"},
                                                                            {12, "SIGUSR2"},
                                                                            {13, "SIGPIPE"},
                                                                            {14, "SIGALRM"},
                                                                            {15, "SIGTERM"},
                                                                            {kSys, "SIGSYS"}}};
  for (const auto& [number, name] : kNames) {
    if (number == signal) return std::string(name);
  }
  return "signal " + std::to_string(signal);
}

bool blames_a_peer(const std::string& line) {
  static constexpr std::array<std::string_view, 9> kSigns{
      "Connection closed by peer", "Connection reset by peer", "Broken pipe",
      "ncclRemoteError",           "ncclInternalError",        "Socket Timeout",
      "Timed out waiting",         "Connection refused",       "NCCL communicator was aborted"};
  return std::any_of(kSigns.begin(), kSigns.end(),
                     [&](std::string_view sign) { return line.find(sign) != std::string::npos; });
}

bool left_something(const RankReport& r) {
  return (r.state == ProcessState::exited || r.state == ProcessState::gone) && r.group_gone_us == 0;
}

Verdict judge(const RankReport& r) {
  Verdict v;
  if (r.state == ProcessState::never_started) {
    v.failure_class = FailureClass::start_up;
    v.fatal = true;
    v.signature = "never started: " + r.message;
    v.text = "could not be started: " + r.message;
    return v;
  }
  if (r.state == ProcessState::gone || r.state == ProcessState::unknown) {
    v.failure_class = FailureClass::infrastructure;
    v.signature = "gone";
    v.text = "its supervisor process was lost" + (r.message.empty() ? "" : " (" + r.message + ")");
    return v;
  }
  if (r.ended_by_us) {
    v.failure_class = FailureClass::preempted;
    v.signature = "ended with its host";
    v.text = "was ended together with its host's agent";
    return v;
  }
  if (r.bind_failed) {
    v.failure_class = FailureClass::start_up;
    v.signature = "rendezvous address in use";
    v.text = "the rendezvous port was taken by someone else";
    return v;
  }
  if (r.signal != 0) {
    v.signature = signal_name(r.signal);
    if (r.out_of_memory) {
      v.failure_class = FailureClass::out_of_memory;
      v.text = "process died: out of memory (killed by the kernel)";
    } else if (is_own_fault(r.signal)) {
      v.text = "process died: " + v.signature;
      if (!r.error_line.empty()) v.signature += ": " + normalized(r.error_line);
    } else {
      v.failure_class = FailureClass::killed;
      v.text = "process died: killed by signal " + std::to_string(r.signal) + " (" + v.signature +
               "), not by us";
    }
    return v;
  }
  if (r.exit_code == 0) {
    v.failure_class = FailureClass::early_exit;
    v.signature = "exit 0 before its peers";
    v.text = "exited with 0 before its peers had finished";
    return v;
  }
  v.signature = "exit " + std::to_string(r.exit_code);
  v.text = "process exited with " + std::to_string(r.exit_code);
  if (!r.error_line.empty()) {
    v.signature += ": " + normalized(r.error_line);
    v.text += ": " + r.error_line;
  }
  v.peer_error = blames_a_peer(r.error_line);
  return v;
}

}  // namespace regrow
