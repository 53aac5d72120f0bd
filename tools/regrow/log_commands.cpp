// logs: what a job's ranks wrote, from the hosts they run on.
#include <CLI/CLI.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/job_view.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

constexpr uint32_t kChunkBytes = 256u << 10;
constexpr auto kFollowPause = std::chrono::milliseconds(200);
constexpr auto kLookForRestarts = std::chrono::seconds(1);

struct LogOptions {
  std::string job;
  int64_t rank = -1;  // -1 = all
  uint32_t incarnation = 0;
  uint32_t tail = 0;
  bool follow = false;
  bool stderr_stream = false;
};

// One rank's output, read on from where it was.
struct Reader {
  uint32_t rank = 0;
  LogQuery query;
  std::string unfinished;  // a line whose end has not come yet
  bool started = false;
  bool told_trouble = false;
};

class LogPrinter {
 public:
  LogPrinter(Cli& cli, const LogOptions& options)
      : cli_(cli), options_(options), job_(parse_job(options.job)) {}

  int run();

 private:
  Json ranks();
  void make_readers();
  bool drain(Reader& reader);
  bool put(Reader& reader, const std::string& data);
  std::string shown(const Reader& reader, std::string_view line) const;
  void note(const Reader& reader, const std::string& text);
  void look_for_restarts();
  bool ended();

  Cli& cli_;
  LogOptions options_;
  uint64_t job_;
  std::vector<Reader> readers_;
  std::map<uint32_t, uint32_t> newest_;  // rank -> its incarnation, as the controller says
  bool unread_ = false;                  // nobody reads stdout any more
};

Json LogPrinter::ranks() { return child(cli_.query("ranks", {{"job", job_}}), "ranks"); }

void LogPrinter::make_readers() {
  for (const auto& row : ranks()) {
    auto rank = get<uint32_t>(row, "rank");
    if (options_.rank >= 0 && rank != static_cast<uint64_t>(options_.rank)) continue;
    newest_[rank] = get<uint32_t>(row, "incarnation");
    Reader reader;
    reader.rank = rank;
    reader.query.job = {job_};
    reader.query.rank = {rank};
    reader.query.incarnation = {options_.incarnation};
    reader.query.stream = options_.stderr_stream ? "stderr" : "stdout";
    reader.query.max_bytes = kChunkBytes;
    reader.query.tail_lines = options_.tail;
    readers_.push_back(std::move(reader));
  }
  if (readers_.empty() && options_.rank >= 0) {
    fail(kExitUsage, "job " + std::to_string(job_) + " has no rank " +
                         std::to_string(options_.rank) + "; `regrow ranks " + std::to_string(job_) +
                         "` lists them");
  }
}

void LogPrinter::note(const Reader& reader, const std::string& text) {
  complain("rank " + std::to_string(reader.rank) + ": " + one_line(text));
}

std::string LogPrinter::shown(const Reader& reader, std::string_view line) const {
  if (cli_.json()) {
    Json out{{"rank", reader.rank},
             {"incarnation", reader.query.incarnation.value},
             {"stream", reader.query.stream},
             {"line", std::string(line)}};
    return dump(out) + "\n";
  }
  std::string text = cli_.terminal.width > 0 ? lines_of(line) : std::string(line);
  if (readers_.size() > 1) text = "rank " + std::to_string(reader.rank) + " | " + text;
  return text + "\n";
}

// One write per chunk: a flooded log has millions of lines.
bool LogPrinter::put(Reader& reader, const std::string& data) {
  reader.unfinished += data;
  size_t begin = 0;
  std::string text;
  for (size_t end; (end = reader.unfinished.find('\n', begin)) != std::string::npos;
       begin = end + 1) {
    text += shown(reader, std::string_view(reader.unfinished).substr(begin, end - begin));
  }
  reader.unfinished.erase(0, begin);
  return text.empty() || say(text);
}

// Prints what there is now. False if the log cannot be read at present.
bool LogPrinter::drain(Reader& reader) {
  while (!unread_) {
    auto chunk = cli_.client().read_log(reader.query);
    if (!chunk) {
      if (!options_.follow && readers_.size() == 1) throw CommandFailed(chunk.error());
      if (!reader.told_trouble) note(reader, chunk.error().message);
      reader.told_trouble = true;
      return false;
    }
    reader.told_trouble = false;
    reader.started = true;
    if (!chunk->note.empty()) note(reader, chunk->note);
    reader.query.incarnation = chunk->incarnation;
    reader.query.offset = chunk->next_offset;
    reader.query.tail_lines = 0;
    if (!put(reader, chunk->data)) unread_ = true;
    if (chunk->at_end || (chunk->data.empty() && chunk->note.empty())) break;
  }
  return true;
}

// A rank that was started again has a new log; what was left of the old one is printed already.
void LogPrinter::look_for_restarts() {
  for (const auto& row : ranks())
    newest_[get<uint32_t>(row, "rank")] = get<uint32_t>(row, "incarnation");
  for (auto& reader : readers_) {
    uint32_t newest = newest_[reader.rank];
    if (!reader.started || newest <= reader.query.incarnation.value) continue;
    drain(reader);
    if (!reader.unfinished.empty()) say(shown(reader, reader.unfinished));
    reader.unfinished.clear();
    note(reader, "started again as incarnation " + std::to_string(newest));
    reader.query.incarnation = {newest};
    reader.query.offset = 0;
    reader.started = false;
  }
}

bool LogPrinter::ended() { return job_view(cli_.query("job", {{"job", job_}})).ended(); }

int LogPrinter::run() {
  make_readers();
  auto looked = std::chrono::steady_clock::now();
  bool readable = false;
  while (true) {
    bool over = !options_.follow;
    auto now = std::chrono::steady_clock::now();
    if (options_.follow && now - looked >= kLookForRestarts) {
      looked = now;
      try {
        if (options_.incarnation == 0) look_for_restarts();
        over = ended();
        if (readers_.empty()) make_readers();
      } catch (const CommandFailed& failed) {
        // A controller that restarts is waited for.
        if (failed.error().exit_code != kExitUnreachable) throw;
      }
    }
    for (auto& reader : readers_) readable = drain(reader) || readable;
    if (over || unread_) break;
    std::this_thread::sleep_for(kFollowPause);
  }
  for (auto& reader : readers_) {
    if (!reader.unfinished.empty() && !unread_) say(shown(reader, reader.unfinished));
  }
  if (readers_.empty()) complain("job " + std::to_string(job_) + " has not started any rank yet");
  return readable || readers_.empty() ? kExitOk : kExitJobFailed;
}

}  // namespace

void add_log_commands(CLI::App& app, Cli& cli) {
  auto options = std::make_shared<LogOptions>();
  auto* command = add_command(app, cli,
                              {"logs", "Looking", "What a job's ranks wrote",
                               "regrow logs 7 --rank 2 --stderr\nregrow logs 7 --tail 20 -f"});
  command->add_option("JOB", options->job, "Number of the job")->required();
  command
      ->add_option("--rank", options->rank,
                   "Only this rank (default: all, each line with its rank)")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tail", options->tail, "Begin so many lines before the end");
  command->add_option("--incarnation", options->incarnation,
                      "An earlier start of the rank (default: the newest)");
  command->add_flag("--stderr", options->stderr_stream, "stderr instead of stdout");
  command->add_flag("-f,--follow", options->follow,
                    "Go on with what is written from now on, until the job ends");
  on_run(command, cli, [&cli, options] { return LogPrinter(cli, *options).run(); });
}

}  // namespace regrow::cli
