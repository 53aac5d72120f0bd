// A story told to the engine, and its transcript: what came in, what was decided and why, what is
// wanted of the agents. Time is virtual, messages take none, agents do as they are told unless the
// story says otherwise. See README.md for how to read and renew the transcripts.
//
//   Story story("rank_killed", "One of four ranks is killed ...", {.hosts = 2});
//   story.start(basic_spec("demo", 4));
//   story.progress(120);
//   story.exits({3}, 0, 9);
//   story.pass(Duration::seconds(5));
//   story.check();                       // against tests/golden/rank_killed.txt
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tests/driver/controller.h"

namespace regrow::golden {

struct StoryOptions {
  uint32_t hosts = 2;
  uint32_t devices_per_host = 2;
  bool from_the_beginning = false;  // print also how hosts join and the job starts
};

JobSpec demo_spec(uint32_t ranks);

class Story : private sim::Outside {
 public:
  Story(std::string name, const std::string& about, StoryOptions options);

  // Hosts join, the job is submitted, its ranks run.
  void start(const JobSpec& spec);
  void submit(const JobSpec& spec);
  void pass(Duration d);
  void say(const std::string& comment);

  // What ranks do.
  void progress(int64_t step);  // every running rank reports it
  void exits(std::vector<uint32_t> ranks, int32_t code, int32_t signal,
             const std::string& error_line = "");
  void joins(uint32_t rank, int64_t step, bool intact);  // the newest planned generation
  void stops_moving(uint32_t rank);                      // SIGSTOP
  void ignores_term(bool yes) { ignores_term_ = yes; }
  void start_takes(Duration d) { start_takes_ = d; }
  void next_bind_fails() { bind_fails_ = true; }
  void has_checkpoint(int64_t step, const std::string& problem = "");

  // What happens to hosts and to the controller.
  void cut(uint32_t host, const std::string& how = "the link is cut");
  void heal(uint32_t host);
  void crash_controller(Duration down);
  void crash_controller_after(const std::string& event,
                              Duration down);  // the next one of this name

  // What operators say.
  void set_desired(Desired desired, const std::string& reason);

  const JobState& job() const;
  // Compares with the file, or writes it if REGROW_UPDATE_GOLDEN is set.
  void check();

 private:
  struct Rank {
    SpawnCommand command;
    RankReport report;
    int64_t step = -1;
    int64_t moved_us = 0;
    bool alive = false;
    bool stopped = false;
    bool acknowledged = false;
  };
  struct Host {
    HostName name;
    SessionId session;
    bool reachable = true;
    std::vector<DeviceReport> devices;
    std::map<IncarnationKey, Rank> ranks;
  };
  struct Line {
    std::string prefix;            // "rank/1/"
    std::vector<std::string> ids;  // "0", "3"
    std::string text;
    std::string reason;
  };

  void perform(const Effect& effect) override;
  void answer(const Reply& reply) override;
  void appended(const EventRecord& r) override;
  void handled(const EntityHost& host, const Envelope& envelope, const Outbox& out) override;

  void connect(Host& h);
  void beat();
  void show(Host& h, Rank& r);  // its progress
  void obey(Host& h, const Effect& effect);
  void stop(Host& h, Rank& r, bool force);
  void ended(Host& h, Rank& r, int32_t code, int32_t signal, bool by_us,
             const std::string& error_line);
  void from_agent(Host& h, Envelope envelope);
  void heading(const std::string& text);
  void line(const std::string& entity, const std::string& text, const std::string& reason);
  void flush();
  Host& host_of(const HostName& name);
  Host* host_with(uint32_t rank, Rank** found);

  std::string name_;
  StoryOptions options_;
  sim::Loop loop_{Time{0}};
  sim::SimController controller_;
  std::vector<Host> hosts_;
  std::string text_;
  std::string heading_;  // of the present block; printed with its first line
  Time heading_at_;
  std::vector<Line> block_;
  bool quiet_ = false;
  bool ignores_term_ = false;
  bool bind_fails_ = false;
  Duration start_takes_ = Duration::ms(30);
  std::vector<CheckpointFound> checkpoints_;
  std::string crash_after_;
  Duration crash_down_;
  uint64_t sessions_ = 0;
  uint64_t requests_ = 0;
  uint64_t epoch_ = 1;
};

}  // namespace regrow::golden
