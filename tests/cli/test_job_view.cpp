// One word for a job's state, one line for its progress.
#include "tests/catch.h"
#include "tools/regrow/job_view.h"

using namespace regrow::cli;

namespace {

Json running() {
  return Json::parse(
      R"({"id": 7, "name": "charlm", "phase": "running", "stage": "none", "desired": "run",
    "reason": "", "ranks": 4, "generation": 2, "incidents": 1, "recoveries": 1, "step": 100, "total_steps": 400,
    "loss": 2.3104, "step_seconds": 0.048, "hosts": ["h1", "h2"], "submitted_us": 1000000, "ended_us": 0})");
}

}  // namespace

TEST_CASE("a running job's line has step, loss, step time, world and generation") {
  CHECK(progress_line(job_view(running()), 0) ==
        "job 7 charlm  [######------------------] 100/400  loss 2.31  48 ms/step  4 ranks  gen 2  "
        "1 recovery  14 s left");
}

TEST_CASE("a narrow line loses its end first") {
  CHECK(progress_line(job_view(running()), 70) ==
        "job 7 charlm  [######------------------] 100/400  loss 2.31");
  CHECK(progress_line(job_view(running()), 5) == "job …");
}

TEST_CASE("a line makes do with what is known") {
  Json job = running();
  job["total_steps"] = 0;
  job["loss"] = nullptr;
  job["step_seconds"] = 0;
  job["recoveries"] = 0;
  CHECK(progress_line(job_view(job), 0) == "job 7 charlm  step 100  4 ranks  gen 2");
  job["step"] = -1;
  job["phase"] = "starting";
  job["stage"] = "placing";
  job["generation"] = 0;
  CHECK(progress_line(job_view(job), 0) == "job 7 charlm  starting (placing)  4 ranks");
}

TEST_CASE("more steps than promised do not burst the bar") {
  Json job = running();
  job["step"] = 500;
  CHECK(progress_line(job_view(job), 50) == "job 7 charlm  [########################] 500/400");
}

TEST_CASE("answers that are older, newer or broken are read as far as possible") {
  CHECK(job_view(Json()).id == 0);
  JobView job = job_view(
      Json::parse(R"({"id": "seven", "step": null, "loss": "NaN", "phase": 3, "hosts": "h1"})"));
  CHECK(job.id == 0);
  CHECK(job.step == -1);
  CHECK(std::isnan(job.loss));
  CHECK(progress_line(job, 0) == "job 0  0 ranks");
}

TEST_CASE("what a person wants of a job shows in its state") {
  JobView job;
  job.phase = "running";
  job.desired = "run";
  CHECK(state_word(job) == "running");
  job.desired = "pause";
  CHECK(state_word(job) == "pausing");
  job.phase = "queued";
  CHECK(state_word(job) == "paused");
  job.desired = "hold";
  CHECK(state_word(job) == "held");
  CHECK(job.held());
  job.desired = "cancel";
  CHECK(state_word(job) == "cancelling");
  job.phase = "cancelled";
  CHECK(state_word(job) == "cancelled");
  CHECK(exit_code_of(job) == 1);
  job.phase = "completed";
  CHECK(exit_code_of(job) == 0);
}
