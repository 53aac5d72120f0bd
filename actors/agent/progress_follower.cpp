#include "actors/agent/progress_follower.h"

#include <re2/re2.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

namespace regrow {
namespace {

constexpr uint64_t kMostPerPoll = 256 * 1024;
constexpr size_t kLongestLine = 8192;

int group_index(const re2::RE2& pattern, const char* name) {
  auto found = pattern.NamedCapturingGroups().find(name);
  return found == pattern.NamedCapturingGroups().end() ? 0 : found->second;
}

}  // namespace

ProgressFollower::ProgressFollower(const std::string& directory, shim::LogLayout layout,
                                   const std::string& pattern)
    : streams_{{LogReader(directory, "stdout", layout), 0, ""},
               {LogReader(directory, "stderr", layout), 0, ""}} {
  if (pattern.empty()) return;
  auto compiled = std::make_unique<re2::RE2>(pattern, re2::RE2::Quiet);
  if (!compiled->ok()) return;
  step_group_ = group_index(*compiled, "step");
  loss_group_ = group_index(*compiled, "loss");
  if (step_group_ > 0) pattern_ = std::move(compiled);
}

ProgressFollower::~ProgressFollower() = default;

bool ProgressFollower::poll() {
  bool out = poll(streams_[0]);
  bool err = poll(streams_[1]);
  return std::exchange(news_, false) || out || err;
}

void ProgressFollower::report(const StepReport& report) {
  int64_t time_us = std::max(report.time_us, step_us_);
  if (!reported_) {
    // Step lines that were read before may count otherwise.
    reported_ = true;
    pattern_ = nullptr;
    step_ = -1;
    step_seconds_ = 0;
  }
  see_step(report.step, time_us);
  output_us_ = std::max(output_us_, time_us);
  if (!std::isnan(report.loss)) loss_ = report.loss;
  news_ = true;
}

bool ProgressFollower::poll(Stream& stream) {
  LogExtent extent = stream.reader.extent();
  if (extent.end <= stream.position) return false;
  if (!reported_) output_us_ = std::max(output_us_, extent.written_us);
  if (!pattern_) {
    stream.position = extent.end;
    return true;
  }
  uint64_t from = stream.position;
  if (extent.end - from > kMostPerPoll) {
    from = extent.end - kMostPerPoll;
    stream.partial.clear();
  }
  if (from < extent.tail_begin && from >= extent.head_end) from = extent.tail_begin;
  scan(stream, stream.reader.read(extent, from, extent.end - from), extent.written_us);
  stream.position = extent.end;
  return true;
}

void ProgressFollower::scan(Stream& stream, std::string bytes, int64_t written_us) {
  bytes.insert(0, stream.partial);
  std::string_view rest = bytes;
  while (true) {
    // A progress bar ends its lines with \r.
    size_t end = rest.find_first_of("\r\n");
    if (end == std::string_view::npos) break;
    scan_line(rest.substr(0, end), written_us);
    rest.remove_prefix(end + 1);
  }
  stream.partial = rest.size() <= kLongestLine ? rest : std::string_view();
}

void ProgressFollower::scan_line(std::string_view line, int64_t written_us) {
  if (line.empty() || line.size() > kLongestLine) return;
  std::vector<re2::StringPiece> groups(static_cast<size_t>(pattern_->NumberOfCapturingGroups()) +
                                       1);
  re2::StringPiece text(line.data(), line.size());
  if (!pattern_->Match(text, 0, text.size(), re2::RE2::UNANCHORED, groups.data(),
                       static_cast<int>(groups.size()))) {
    return;
  }
  re2::StringPiece digits = groups[static_cast<size_t>(step_group_)];
  int64_t step = -1;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0) return;
  see_step(step, written_us);
  if (loss_group_ > 0) {
    re2::StringPiece loss = groups[static_cast<size_t>(loss_group_)];
    if (!loss.empty()) loss_ = strtod(std::string(loss.data(), loss.size()).c_str(), nullptr);
  }
}

void ProgressFollower::see_step(int64_t step, int64_t time_us) {
  if (step_ >= 0 && step > step_ && time_us > step_us_) {
    double seconds =
        static_cast<double>(time_us - step_us_) / 1e6 / static_cast<double>(step - step_);
    step_seconds_ = step_seconds_ == 0 ? seconds : 0.8 * step_seconds_ + 0.2 * seconds;
  }
  // Lines of one read share one time; the first of them is when the step was seen to move.
  if (step != step_) step_us_ = time_us;
  step_ = step;
}

}  // namespace regrow
