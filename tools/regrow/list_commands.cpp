// status, jobs, hosts, devices, ranks: what there is now.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <set>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/job_view.h"
#include "tools/regrow/table.h"
#include "tools/regrow/text.h"

namespace regrow::cli {
namespace {

constexpr size_t kEndedJobsShown = 20;

int64_t now_us() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::string number_or_dash(int64_t number) { return number < 0 ? "-" : std::to_string(number); }

std::string loss_cell(double loss) {
  if (!std::isfinite(loss)) return "-";
  char out[32];
  std::snprintf(out, sizeof out, "%.4g", loss);
  return out;
}

int print_list(Cli& cli, const Json& list, const Table& table, const std::string& nothing) {
  if (cli.json()) {
    say(dump(list, 2) + "\n");
  } else if (table.rows() == 0) {
    say(nothing + "\n");
  } else {
    say(table.text(cli.terminal));
  }
  return kExitOk;
}

// --- status
// ---------------------------------------------------------------------------------------

int show_status(Cli& cli) {
  Json status = cli.query("status");
  if (cli.json()) {
    say(dump(status, 2) + "\n");
    return kExitOk;
  }
  auto text = [&](const char* key) { return one_line(get<std::string>(status, key)); };
  auto number = [&](const char* key) { return get<uint64_t>(status, key); };
  std::string epoch = child(status, "epoch").is_number() ? std::to_string(number("epoch"))
                                                         : dump(child(status, "epoch"));
  say("cluster     " + text("cluster_id") + "\n" + "controller  " + text("version") + ", pid " +
      std::to_string(number("pid")) + ", up " +
      span_text(static_cast<int64_t>(get<double>(status, "uptime_s") * 1e6)) + ", epoch " + epoch +
      "\n" + "hosts       " + std::to_string(number("hosts_up")) + " of " +
      std::to_string(number("hosts")) + " up\n" + "jobs        " +
      std::to_string(number("jobs_active")) + " active, " + std::to_string(number("jobs")) +
      " in all\n" + "journal     " + count_text(number("last_seq"), "event") + " in " +
      text("state_dir") + "\n");
  return kExitOk;
}

// --- jobs
// -----------------------------------------------------------------------------------------

// The active ones and, unless all are wanted, only the newest of those that have ended.
Json jobs_shown(const Json& answer, bool all) {
  Json jobs = child(answer, "jobs").is_array() ? child(answer, "jobs") : Json::array();
  std::sort(jobs.begin(), jobs.end(), [](const Json& a, const Json& b) {
    return get<uint64_t>(a, "id") < get<uint64_t>(b, "id");
  });
  if (all) return jobs;
  size_t ended = static_cast<size_t>(std::count_if(
      jobs.begin(), jobs.end(), [](const Json& job) { return job_view(job).ended(); }));
  Json shown = Json::array();
  for (const auto& job : jobs) {
    if (job_view(job).ended() && ended-- > kEndedJobsShown) continue;
    shown.push_back(job);
  }
  return shown;
}

int list_jobs(Cli& cli, bool all) {
  Json jobs = jobs_shown(cli.query("jobs", {{"all", true}}), all);
  Table table({{"JOB", Align::right},
               {"NAME", Align::left, true},
               {"STATE"},
               {"RANKS", Align::right},
               {"STEP", Align::right},
               {"LOSS", Align::right},
               {"GEN", Align::right},
               {"INCIDENTS", Align::right},
               {"AGE", Align::right},
               {"REASON", Align::left, true}});
  for (auto& row : jobs) {
    JobView job = job_view(row);
    row["job"] = job.id;  // beside "id": the name that `ranks` and `submit` use
    std::string step = number_or_dash(job.step);
    if (job.total_steps > 0) step += "/" + std::to_string(job.total_steps);
    int64_t until = job.ended() && job.ended_us > 0 ? job.ended_us : now_us();
    table.add({std::to_string(job.id),
               job.name,
               {state_word(job), state_tone(job)},
               std::to_string(job.ranks),
               step,
               loss_cell(job.loss),
               std::to_string(job.generation),
               std::to_string(job.incidents),
               job.submitted_us > 0 ? span_text(until - job.submitted_us) : "-",
               job.reason});
  }
  return print_list(cli, jobs, table, "no jobs yet; `regrow run RECIPE` submits one");
}

// --- hosts and devices
// ----------------------------------------------------------------------------

Tone link_tone(const std::string& link) {
  if (link == "up") return Tone::good;
  return link == "suspect" || link == "never" ? Tone::warning : Tone::bad;
}

int list_hosts(Cli& cli) {
  Json answer = cli.query("hosts");
  Json hosts = child(answer, "hosts").is_array() ? child(answer, "hosts") : Json::array();
  Table table({{"HOST"},
               {"LINK"},
               {"ADMIN"},
               {"HEALTH"},
               {"DEVICES", Align::right},
               {"FREE", Align::right},
               {"RANKS", Align::right},
               {"ADDRESS"},
               {"NOTE", Align::left, true}});
  for (const auto& host : hosts) {
    std::string link = get<std::string>(host, "link");
    std::string admin = get<std::string>(host, "admin");
    std::string health = get<std::string>(host, "health");
    std::string note = get<std::string>(host, "why_not");
    std::string reason = get<std::string>(host, "admin_reason");
    if (admin != "in_service" && !reason.empty()) {
      note = reason + " (by " + get<std::string>(host, "admin_by") + ")";
    }
    const Json& unknown = child(host, "unknown_ranks");
    uint64_t strangers = unknown.is_array() ? unknown.size() : get<uint64_t>(host, "unknown_ranks");
    if (strangers > 0) {
      note +=
          (note.empty() ? "" : "; ") + count_text(strangers, "rank") + " unknown to this journal";
    }
    if (link == "up" && !get<bool>(host, "connected", true)) note = "not connected at this moment";
    auto count = [&](const char* key) {
      const Json& value = child(host, key);
      return std::to_string(value.is_array() ? value.size() : get<uint64_t>(host, key));
    };
    table.add({get<std::string>(host, "name"),
               {link, link_tone(link)},
               {admin, admin == "in_service" ? Tone::plain : Tone::warning},
               {health, health == "ok" ? Tone::plain : Tone::bad},
               count("devices"),
               count("devices_free"),
               count("ranks"),
               get<std::string>(host, "address"),
               note});
  }
  return print_list(cli, hosts, table, "no host has ever connected; `regrow agent` makes one");
}

int list_devices(Cli& cli, const std::string& host) {
  Json args = Json::object();
  if (!host.empty()) args["host"] = host;
  Json answer = cli.query("devices", args);
  Json devices = child(answer, "devices").is_array() ? child(answer, "devices") : Json::array();
  Table table({{"HOST"},
               {"DEVICE"},
               {"KIND"},
               {"MEMORY", Align::right},
               {"HEALTH"},
               {"LEASE"},
               {"FAULT", Align::left, true}});
  for (const auto& device : devices) {
    std::string health = get<std::string>(device, "health");
    const Json& lease = child(device, "lease");
    std::string holder = "free";
    if (lease.is_object()) {
      holder = "job " + std::to_string(get<uint64_t>(lease, "job")) + " rank " +
               std::to_string(get<uint64_t>(lease, "rank"));
      if (get<bool>(lease, "dirty")) holder += " (dirty)";
    }
    auto memory = get<uint64_t>(device, "memory_bytes");
    table.add({get<std::string>(device, "host"),
               get<std::string>(device, "name"),
               get<std::string>(device, "kind"),
               memory > 0 ? bytes_text(memory) : "-",
               {health, health == "ok" ? Tone::good : Tone::bad},
               holder,
               get<std::string>(device, "fault")});
  }
  return print_list(cli, devices, table, "no devices");
}

// --- ranks
// ----------------------------------------------------------------------------------------

std::string end_text(const Json& rank) {
  std::string message = get<std::string>(rank, "message");
  if (get<bool>(rank, "stopped")) return "stopped by a signal (SIGSTOP)";
  return message;
}

int list_ranks(Cli& cli, const std::string& job_text) {
  uint64_t job = parse_job(job_text);
  Json answer = cli.query("ranks", {{"job", job}});
  Json ranks = child(answer, "ranks").is_array() ? child(answer, "ranks") : Json::array();
  Table table({{"RANK", Align::right},
               {"PROCESS"},
               {"HOST"},
               {"DEVICES"},
               {"PID", Align::right},
               {"INC", Align::right},
               {"GEN", Align::right},
               {"STEP", Align::right},
               {"LOSS", Align::right},
               {"STEP TIME", Align::right},
               {"NOTE", Align::left, true}});
  for (const auto& rank : ranks) {
    std::string process = get<std::string>(rank, "process");
    std::string devices;
    for (const auto& device : child(rank, "devices")) {
      if (device.is_string()) devices += (devices.empty() ? "" : ",") + device.get<std::string>();
    }
    auto pid = get<uint64_t>(rank, "pid");
    double step_seconds = get<double>(rank, "step_seconds");
    Tone tone = process == "running" ? Tone::good : process == "lost" ? Tone::bad : Tone::plain;
    table.add({std::to_string(get<uint64_t>(rank, "rank")),
               {process, tone},
               get<std::string>(rank, "host"),
               devices.empty() ? "-" : devices,
               pid > 0 ? std::to_string(pid) : "-",
               std::to_string(get<uint64_t>(rank, "incarnation")),
               std::to_string(get<uint64_t>(rank, "generation")),
               number_or_dash(get<int64_t>(rank, "step", -1)),
               loss_cell(get<double>(rank, "loss", NAN)),
               step_seconds > 0 ? span_text(static_cast<int64_t>(step_seconds * 1e6)) : "-",
               end_text(rank)});
  }
  return print_list(cli, ranks, table,
                    "job " + std::to_string(job) + " has not placed any rank yet");
}

}  // namespace

void add_list_commands(CLI::App& app, Cli& cli) {
  auto* status = add_command(
      app, cli, {"status", "Looking", "Who answers, and how the cluster is", "regrow status"});
  on_run(status, cli, [&cli] { return show_status(cli); });

  auto all = std::make_shared<bool>(false);
  auto* jobs =
      add_command(app, cli,
                  {"jobs", "Looking", "Lists jobs: all active ones, the newest that have ended",
                   "regrow jobs\nregrow jobs --all -o json"});
  jobs->add_flag("--all", *all, "Every job ever submitted");
  on_run(jobs, cli, [&cli, all] { return list_jobs(cli, *all); });

  auto* hosts = add_command(
      app, cli,
      {"hosts", "Looking", "Lists hosts: link, operators' holds, health, devices", "regrow hosts"});
  on_run(hosts, cli, [&cli] { return list_hosts(cli); });

  auto host = std::make_shared<std::string>();
  auto* devices = add_command(app, cli,
                              {"devices", "Looking", "Lists devices: health, and who holds them",
                               "regrow devices\nregrow devices --host h1"});
  devices->add_option("--host", *host, "Only those of this host");
  on_run(devices, cli, [&cli, host] { return list_devices(cli, *host); });

  auto job = std::make_shared<std::string>();
  auto* ranks = add_command(
      app, cli,
      {"ranks", "Looking", "Lists a job's ranks: process, host, devices, step", "regrow ranks 7"});
  ranks->add_option("JOB", *job, "Number of the job")->required();
  on_run(ranks, cli, [&cli, job] { return list_ranks(cli, *job); });
}

}  // namespace regrow::cli
