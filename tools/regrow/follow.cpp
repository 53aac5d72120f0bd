#include "tools/regrow/follow.h"

#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <thread>

#include "tools/regrow/inbox.h"
#include "tools/regrow/job_view.h"
#include "tools/regrow/narration.h"
#include "tools/regrow/status_line.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kAskEvery = milliseconds(400);
constexpr auto kPlainProgressEvery = seconds(10);
constexpr auto kSecondCtrlC = seconds(2);
// The last events may come a little after the answer that says the job has ended.
constexpr auto kLastEvents = seconds(2);
// A controller that is away for so long was ended, not restarted.
constexpr auto kGiveUp = std::chrono::minutes(10);
constexpr Duration kPollPatience = Duration::seconds(2);

struct News {
  std::vector<std::string> lines;  // events
  std::optional<Json> job;         // an answer to "job"
  bool watch_state = false;        // `trouble` is the watch's: empty = connected
  std::string trouble;
  std::optional<Error> failed;  // following cannot go on
};

// Asks for the job again and again until stopped.
class Poller {
 public:
  Poller(AdminClientOptions options, uint64_t job, Inbox<News>& inbox)
      : client_(std::move(options)), job_(job), inbox_(inbox), thread_([this] { run(); }) {}
  ~Poller() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      lock.unlock();
      auto answer = client_.query("job", {{"job", job_}});
      News news;
      if (answer)
        news.job = std::move(*answer);
      else if (answer.error().exit_code != kExitUnreachable)
        news.failed = answer.error();
      if (news.job || news.failed) inbox_.push(std::move(news));
      lock.lock();
      wake_.wait_for(lock, kAskEvery, [this] { return stop_; });
    }
  }

  AdminClient client_;
  uint64_t job_;
  Inbox<News>& inbox_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;  // guarded by mutex_
  std::thread thread_;
};

class Follower {
 public:
  Follower(Cli& cli, SignalQueue& signals, const FollowOptions& options)
      : cli_(cli), signals_(signals), options_(options), line_(cli.terminal) {}

  int run();

 private:
  WatchCallbacks callbacks();
  std::string entity() const { return "job/" + std::to_string(options_.job); }
  std::string come_back() const;
  void on_signal(int signal);
  void ask_to_cancel();
  void take(const News& news);
  void tell(const std::string& text);
  void show_progress();
  bool over() const;
  bool given_up() const;
  int finish();

  Cli& cli_;
  SignalQueue& signals_;
  FollowOptions options_;
  StatusLine line_;
  Inbox<News> inbox_;
  std::optional<Json> job_;  // newest answer
  bool ended_event_ = false;
  std::optional<Clock::time_point> ended_seen_;
  std::optional<Clock::time_point> detach_at_;
  bool cancel_asked_ = false;
  bool leave_ = false;
  bool disconnected_ = false;
  Clock::time_point disconnected_at_;
  bool unread_ = false;  // nobody reads stdout any more
  int64_t told_step_ = -2;
  Clock::time_point told_at_ = Clock::now();
};

WatchCallbacks Follower::callbacks() {
  WatchCallbacks callbacks;
  callbacks.on_lines = [this](const std::vector<std::string>& lines) {
    News news;
    news.lines = lines;
    inbox_.push(std::move(news));
  };
  callbacks.on_state = [this](const std::string& trouble) {
    News news;
    news.watch_state = true;
    news.trouble = trouble;
    inbox_.push(std::move(news));
  };
  callbacks.on_failed = [this](const Error& error) {
    News news;
    news.failed = error;
    inbox_.push(std::move(news));
  };
  return callbacks;
}

std::string Follower::come_back() const {
  std::string command = "regrow attach " + std::to_string(options_.job);
  if (!cli_.cluster.empty()) command += " --cluster " + cli_.cluster;
  if (!cli_.certs.empty()) command += " --certs " + cli_.certs;
  return command;
}

int Follower::run() {
  auto watch = cli_.client().watch({options_.from_seq, entity()}, callbacks());
  AdminClientOptions patience = cli_.client_options();
  patience.connect_timeout = kPollPatience;
  patience.silence_limit = kPollPatience;
  Poller poller(patience, options_.job, inbox_);
  while (!over()) {
    pollfd waits[] = {{signals_.fd(), POLLIN, 0}, {inbox_.fd(), POLLIN, 0}};
    poll(waits, 2, 100);
    while (auto signal = signals_.take()) on_signal(*signal);
    for (const auto& news : inbox_.take()) take(news);
    show_progress();
  }
  return finish();
}

void Follower::on_signal(int signal) {
  std::string number = std::to_string(options_.job);
  if (signal == SIGTERM || cancel_asked_) {
    leave_ = true;
  } else if (detach_at_) {
    ask_to_cancel();
  } else {
    detach_at_ = Clock::now() + kSecondCtrlC;
    line_.clear();
    complain("detaching; job " + number + " goes on (Ctrl-C again within 2 s: cancel it)");
  }
}

void Follower::ask_to_cancel() {
  cancel_asked_ = true;
  detach_at_.reset();
  auto answer = cli_.client().act("set_desired", {{"job", options_.job}, {"desired", "cancel"}},
                                  "Ctrl-C twice");
  line_.clear();
  if (!answer) {
    complain("could not cancel: " + answer.error().message);
    leave_ = true;
    return;
  }
  complain("asked to cancel job " + std::to_string(options_.job) +
           "; waiting for its end (Ctrl-C again: leave)");
}

void Follower::take(const News& news) {
  if (news.failed) throw CommandFailed(*news.failed);
  if (news.job) {
    job_ = news.job;
    JobView view = job_view(*job_);
    bool final = view.ended() || view.held();
    if (final && !ended_seen_) ended_seen_ = Clock::now();
    if (!final) ended_seen_.reset();
  }
  if (news.watch_state) {
    bool lost = !news.trouble.empty();
    if (lost && !disconnected_) disconnected_at_ = Clock::now();
    if (lost && !disconnected_ && !cli_.json()) {
      unread_ = !line_.print(clock_text(std::chrono::duration_cast<std::chrono::microseconds>(
                                            std::chrono::system_clock::now().time_since_epoch())
                                            .count()) +
                                 "  the controller is gone; waiting for it, the ranks run on",
                             Tone::warning);
    } else if (!lost && disconnected_ && !cli_.json()) {
      unread_ = !line_.print("          the controller is back", Tone::good);
    }
    disconnected_ = lost;
  }
  for (const auto& text : news.lines) tell(text);
}

void Follower::tell(const std::string& text) {
  Json event = Json::parse(text, nullptr, false);
  if (!event.is_object() || !event.contains("seq")) return;
  if (get<std::string>(event, "entity") == entity() && kind_of(event) == "job_ended")
    ended_event_ = true;
  if (cli_.json()) {
    unread_ = !say(text + "\n") || unread_;
    return;
  }
  if (auto sentence = narrate(event)) {
    std::string line = clock_text(get<int64_t>(event, "time_us")) + "  " + sentence->text;
    unread_ = !line_.print(line, sentence->tone) || unread_;
  }
}

void Follower::show_progress() {
  if (cli_.json() || !job_ || detach_at_) return;
  JobView job = job_view(*job_);
  if (line_.live()) {
    line_.resized();
    std::string text = progress_line(job, line_.width() - 1);
    if (disconnected_) text = "no controller; last known: " + text;
    line_.show(text, disconnected_ ? Tone::warning : Tone::plain);
    return;
  }
  bool due = Clock::now() - told_at_ >= kPlainProgressEvery && job.step != told_step_;
  if (!due || disconnected_ || job.ended()) return;
  told_at_ = Clock::now();
  told_step_ = job.step;
  unread_ = !line_.print("          " + progress_line(job, 0)) || unread_;
}

bool Follower::over() const {
  if (leave_ || unread_ || given_up()) return true;
  if (detach_at_ && Clock::now() >= *detach_at_) return true;
  return ended_seen_ && (ended_event_ || Clock::now() - *ended_seen_ > kLastEvents);
}

bool Follower::given_up() const {
  return disconnected_ && Clock::now() - disconnected_at_ > kGiveUp;
}

int Follower::finish() {
  line_.clear();
  if (given_up() && !leave_) {
    fail(kExitUnreachable,
         "the controller has been away for ten minutes. Once it is back:  " + come_back());
  }
  if (ended_seen_) return report_end(cli_, *job_);
  if (!unread_)
    complain("detached; job " + std::to_string(options_.job) +
             " goes on. To come back:  " + come_back());
  return kExitInterrupted;
}

void print_failure(const JobView& job, const Json& failure) {
  std::string id = std::to_string(job.id);
  std::string state = state_word(job);
  std::string reason = one_line(job.reason);
  if (reason.starts_with(state + ": ")) reason.erase(0, state.size() + 2);
  complain("job " + id + " " + state + (reason.empty() ? "" : ": " + reason));
  if (failure.is_object()) {
    auto rank = get<uint64_t>(failure, "rank");
    std::string cause = get<std::string>(failure, "cause");
    if (cause.empty()) cause = get<std::string>(failure, "signature");
    complain("first to fail: rank " + std::to_string(rank) + " on " +
             one_line(get<std::string>(failure, "host")) +
             (cause.empty() ? "" : ": " + one_line(cause)));
    std::string words = lines_of(get<std::string>(failure, "last_words"));
    while (!words.empty() && words.back() == '\n') words.pop_back();
    if (!words.empty()) complain("\n" + words + "\n");
    if (!words.empty())
      complain("regrow logs " + id + " --rank " + std::to_string(rank) +
               " --stderr    has all it wrote");
  }
  if (job.held()) {
    complain("It is held until a person has looked. Then:  regrow resume " + id +
             "   or:  regrow cancel " + id);
  }
}

}  // namespace

int report_end(const Cli& cli, const Json& answer) {
  JobView job = job_view(answer);
  int code = exit_code_of(job);
  if (cli.json()) {
    say(dump({{"job", job.id},
              {"phase", job.phase},
              {"desired", job.desired},
              {"reason", job.reason},
              {"exit_code", code},
              {"first_failure", child(answer, "first_failure")}}) +
        "\n");
  }
  if (job.phase == "completed") {
    std::string text = "job " + std::to_string(job.id) + " completed";
    if (job.step >= 0) text += ": step " + std::to_string(job.step);
    text += (job.step >= 0 ? " on " : ": ") + count_text(job.ranks, "rank");
    if (job.ended_us > job.submitted_us && job.submitted_us > 0) {
      text += " in " + span_text(job.ended_us - job.submitted_us);
    }
    if (job.recoveries > 0) text += ", " + count_text(job.recoveries, "recovery", "recoveries");
    if (!cli.json()) say(cli.terminal.paint(Tone::good, text) + "\n");
  } else {
    print_failure(job, job.phase == "cancelled" ? Json() : child(answer, "first_failure"));
  }
  return code;
}

int follow(Cli& cli, SignalQueue& signals, const FollowOptions& options) {
  return Follower(cli, signals, options).run();
}

}  // namespace regrow::cli
