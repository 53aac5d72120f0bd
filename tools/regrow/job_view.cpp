#include "tools/regrow/job_view.h"

#include <algorithm>
#include <cstdio>

#include "tools/regrow/text.h"
#include "transport/result.h"

namespace regrow::cli {

namespace {

constexpr size_t kBarWidth = 24;

std::string bar(uint64_t done, uint64_t total) {
  size_t full =
      static_cast<size_t>(static_cast<double>(kBarWidth) *
                          std::min(1.0, static_cast<double>(done) / static_cast<double>(total)));
  return "[" + std::string(full, '#') + std::string(kBarWidth - full, '-') + "]";
}

std::string loss_text(double loss) {
  if (!std::isfinite(loss)) return "";
  char out[48];
  std::snprintf(out, sizeof out, "loss %.4g", loss);
  return out;
}

// What the progress line consists of, the most important first.
std::vector<std::string> parts_of(const JobView& job) {
  std::vector<std::string> parts;
  std::string head = "job " + std::to_string(job.id);
  if (!job.name.empty()) head += " " + fit(one_line(job.name), 24);
  parts.push_back(head);
  if (job.phase != "running") {
    std::string word = state_word(job);
    if (!job.stage.empty() && job.stage != "none" && !job.ended()) word += " (" + job.stage + ")";
    parts.push_back(word);
  }
  auto done = static_cast<uint64_t>(std::max<int64_t>(job.step, 0));
  if (job.total_steps > 0) {
    parts.push_back(bar(done, job.total_steps) + " " + std::to_string(done) + "/" +
                    std::to_string(job.total_steps));
  } else if (job.step >= 0) {
    parts.push_back("step " + std::to_string(job.step));
  }
  parts.push_back(loss_text(job.loss));
  parts.push_back(step_text(job.step_seconds));
  parts.push_back(count_text(job.ranks, "rank"));
  if (job.generation > 0) parts.push_back("gen " + std::to_string(job.generation));
  if (job.recoveries > 0) parts.push_back(count_text(job.recoveries, "recovery", "recoveries"));
  if (job.phase == "running" && job.total_steps > done && job.step_seconds > 0) {
    double left = static_cast<double>(job.total_steps - done) * job.step_seconds;
    parts.push_back(span_text(static_cast<int64_t>(left * 1e6)) + " left");
  }
  std::erase(parts, "");
  return parts;
}

}  // namespace

JobView job_view(const Json& answer) {
  JobView job;
  job.id = get<uint64_t>(answer, "id");
  job.name = get<std::string>(answer, "name");
  job.phase = get<std::string>(answer, "phase");
  job.stage = get<std::string>(answer, "stage");
  job.desired = get<std::string>(answer, "desired", "run");
  job.reason = get<std::string>(answer, "reason");
  job.ranks = get<uint64_t>(answer, "ranks");
  job.generation = get<uint64_t>(answer, "generation");
  job.incidents = get<uint64_t>(answer, "incidents");
  job.recoveries = get<uint64_t>(answer, "recoveries");
  job.step = get<int64_t>(answer, "step", -1);
  job.total_steps = get<uint64_t>(answer, "total_steps");
  job.loss = get<double>(answer, "loss", NAN);
  job.step_seconds = get<double>(answer, "step_seconds");
  for (const auto& host : child(answer, "hosts")) {
    if (host.is_string()) job.hosts.push_back(host.get<std::string>());
  }
  job.submitted_by = get<std::string>(answer, "submitted_by");
  job.submitted_us = get<int64_t>(answer, "submitted_us");
  job.running_since_us = get<int64_t>(answer, "running_since_us");
  job.ended_us = get<int64_t>(answer, "ended_us");
  job.best_checkpoint = get<int64_t>(answer, "best_checkpoint", -1);
  job.resume_step = get<int64_t>(answer, "resume_step", -1);
  return job;
}

std::string state_word(const JobView& job) {
  if (job.ended()) return job.phase;
  if (job.desired == "cancel") return "cancelling";
  if (job.desired == "hold") return job.held() ? "held" : "stopping";
  if (job.desired == "pause") return job.phase == "queued" ? "paused" : "pausing";
  return job.phase;
}

Tone state_tone(const JobView& job) {
  if (job.phase == "completed" || job.phase == "running") return Tone::good;
  if (job.phase == "failed" || job.desired == "hold") return Tone::bad;
  return job.phase == "cancelled" ? Tone::quiet : Tone::warning;
}

std::string progress_line(const JobView& job, size_t width) {
  std::string line;
  for (const auto& part : parts_of(job)) {
    std::string longer = line.empty() ? part : line + "  " + part;
    if (width > 0 && !line.empty() && display_width(longer) > width) break;
    line = std::move(longer);
  }
  return fit(line, width);
}

int exit_code_of(const JobView& job) { return job.phase == "completed" ? kExitOk : kExitJobFailed; }

}  // namespace regrow::cli
