#include "actors/controller/views.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>

#include "actors/controller/router.h"
#include "actors/controller/watch_actor.h"
#include "journal/reflect_json.h"
#include "journal/view.h"
#include "supervisors/placement.h"

namespace regrow {
namespace {

using Json = nlohmann::json;

bool has_ended(Phase p) {
  return p == Phase::completed || p == Phase::failed || p == Phase::cancelled;
}

// One line about an entity, for lists.
std::string summary(const AnyState& state) {
  return std::visit(
      Overloaded{
          [](const std::monostate&) { return std::string("unknown"); },
          [](const ClusterState& s) { return "epoch " + std::to_string(s.epoch.number); },
          [](const HostState& s) {
            return std::string(to_string(s.link)) + ", " + std::string(to_string(s.admin)) + ", " +
                   std::to_string(s.attached.size()) + " ranks";
          },
          [](const DeviceState& s) {
            return s.report.kind + ", " + std::string(to_string(s.health)) +
                   (s.fault.empty() ? "" : ": " + s.fault);
          },
          [](const JobState& s) { return s.spec.name + ", " + std::string(to_string(s.phase)); },
          [](const GroupState& s) {
            return std::string(to_string(s.stage)) + ", generation " +
                   std::to_string(s.generation.value);
          },
          [](const RankState& s) {
            return std::string(to_string(s.process)) + ", incarnation " +
                   std::to_string(s.command.key.incarnation.value) + " on " + s.host.value;
          },
      },
      state);
}

Json number_or_null(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }

}  // namespace

ClusterState Views::cluster() const {
  auto view = projection_.find(EntityId::cluster());
  return view ? std::get<ClusterState>(view->state) : ClusterState{};
}

Json Views::job_row(const JobState& s) const {
  int64_t step = s.progress.step;
  double loss = s.progress.step >= 0 ? s.progress.loss : NAN, step_seconds = 0;
  std::set<std::string> hosts;
  int64_t live_step = -1;
  for (const Slot& slot : s.slots) {
    if (slot.placed) hosts.insert(slot.host.value);
    auto p = board_.find({s.job, slot.rank, slot.incarnation});
    if (!p || p->step < live_step || p->step < 0) continue;
    live_step = p->step;
    if (!std::isnan(p->loss)) loss = p->loss;
    if (p->step_seconds > 0) step_seconds = p->step_seconds;
  }
  if (live_step >= 0) step = live_step;
  return {{"id", s.job.value},
          {"name", s.spec.name},
          {"phase", std::string(to_string(s.phase))},
          {"stage", std::string(to_string(s.stage))},
          {"desired", std::string(to_string(s.desired))},
          {"reason", s.phase_reason},
          {"ranks", s.spec.ranks},
          {"generation", s.generation.value},
          {"incidents", s.incident_count},
          {"recoveries", s.recoveries},
          {"step", step},
          {"total_steps", s.spec.total_steps},
          {"loss", number_or_null(loss)},
          {"step_seconds", step_seconds},
          {"hosts", hosts},
          {"submitted_by", s.submitted_by},
          {"submitted_us", s.submitted_at.us},
          {"running_since_us", s.running_since.us},
          {"ended_us", s.ended_at.us},
          {"best_checkpoint", s.best_checkpoint},
          {"resume_step", s.resume_step}};
}

Json Views::jobs(bool all) const {
  Json list = Json::array();
  std::vector<JobState> found;
  projection_.for_each([&](const EntityView& view) {
    auto* job = std::get_if<JobState>(&view.state);
    if (job != nullptr && (all || !has_ended(job->phase))) found.push_back(*job);
  });
  std::sort(found.begin(), found.end(),
            [](const JobState& a, const JobState& b) { return a.job < b.job; });
  for (const JobState& job : found) list.push_back(job_row(job));
  return {{"jobs", list}};
}

std::optional<Json> Views::job(JobId id) const {
  auto view = projection_.find(EntityId::job(id));
  if (!view) return std::nullopt;
  const JobState& s = std::get<JobState>(view->state);
  Json row = job_row(s);
  row["state"] = to_json(s);
  row["spec"] = to_json(s.spec);
  Json budgets = Json::array();
  for (const Intensity& i : s.spec.intensity) {
    size_t used = std::count_if(s.incidents.begin(), s.incidents.end(), [&](const Incident& x) {
      bool recent = i.window.us == 0 || projection_.last_at() - x.at <= i.window;
      return x.failure_class == i.failure_class && x.counts && x.charged && recent;
    });
    budgets.push_back({{"class", std::string(to_string(i.failure_class))},
                       {"used", used},
                       {"max", i.max_restarts}});
  }
  row["budgets"] = budgets;
  row["first_failure"] = nullptr;
  if (!s.incidents.empty()) {
    const Incident& last = s.incidents.back();
    std::string host = last.rank.value < s.slots.size() ? s.slots[last.rank.value].host.value : "";
    row["first_failure"] = {{"rank", last.rank.value},      {"host", host},
                            {"exit_code", last.exit_code},  {"signal", last.signal},
                            {"signature", last.signature},  {"cause", last.cause},
                            {"last_words", last.last_words}};
  }
  return row;
}

Json Views::hosts() const {
  ClusterState c = cluster();
  Json list = Json::array();
  projection_.for_each([&](const EntityView& view) {
    auto* s = std::get_if<HostState>(&view.state);
    if (s == nullptr) return;
    size_t devices = 0, free = 0;
    bool usable = false;
    std::string why_not = "not seen yet";
    for (const HostEntry& entry : c.hosts) {
      if (entry.host != s->name) continue;
      usable = entry.usable;
      why_not = entry.why_not;
      devices = entry.devices.size();
      free = std::count_if(entry.devices.begin(), entry.devices.end(), [&](const DeviceView& d) {
        bool leased = std::any_of(c.leases.begin(), c.leases.end(), [&](const Lease& l) {
          return l.host == s->name &&
                 std::find(l.devices.begin(), l.devices.end(), d.name) != l.devices.end();
        });
        return d.usable && !leased;
      });
    }
    list.push_back({{"name", s->name.value},
                    {"uid", s->uid},
                    {"link", std::string(to_string(s->link))},
                    {"admin", std::string(to_string(s->admin))},
                    {"admin_reason", s->admin_reason},
                    {"admin_by", s->admin_by},
                    {"health", std::string(to_string(s->health))},
                    {"boot_id", s->boot_id},
                    {"address", s->address},
                    {"connected", board_.session(s->name).value != 0},
                    {"devices", devices},
                    {"devices_free", free},
                    {"ranks", s->attached.size()},
                    {"unknown_ranks", s->unknown.size()},
                    {"usable", usable},
                    {"why_not", why_not}});
  });
  return {{"hosts", list}};
}

Json Views::devices(const std::string& host) const {
  ClusterState c = cluster();
  Json list = Json::array();
  projection_.for_each([&](const EntityView& view) {
    auto* s = std::get_if<DeviceState>(&view.state);
    if (s == nullptr || (!host.empty() && s->host.value != host)) return;
    Json lease = nullptr;
    for (const Lease& l : c.leases) {
      bool mine = l.host == s->host &&
                  std::find(l.devices.begin(), l.devices.end(), s->report.name) != l.devices.end();
      if (mine) lease = {{"job", l.job.value}, {"rank", l.rank.value}, {"dirty", l.dirty}};
    }
    list.push_back({{"host", s->host.value},
                    {"name", s->report.name.value},
                    {"kind", s->report.kind},
                    {"uid", s->report.uid},
                    {"memory_bytes", s->report.memory_bytes},
                    {"health", std::string(to_string(s->health))},
                    {"fault", s->fault},
                    {"usable", s->health == DeviceHealth::ok},
                    {"lease", lease}});
  });
  return {{"devices", list}};
}

std::optional<Json> Views::ranks(JobId id) const {
  auto view = projection_.find(EntityId::job(id));
  if (!view) return std::nullopt;
  const JobState& job = std::get<JobState>(view->state);
  Json list = Json::array();
  for (const Slot& slot : job.slots) {
    Json row{{"rank", slot.rank.value},
             {"process", std::string(to_string(slot.process))},
             {"host", slot.host.value},
             {"devices", to_json(slot.devices)},
             {"incarnation", slot.incarnation.value},
             {"generation", job.generation.value},
             {"pid", 0},
             {"step", -1},
             {"loss", nullptr},
             {"step_seconds", 0},
             {"since_us", 0},
             {"stopped", false},
             {"exit_code", slot.exit_code},
             {"signal", slot.signal},
             {"message", slot.message}};
    auto rank = projection_.find(EntityId::rank(id, slot.rank));
    if (rank) {
      const RankState& s = std::get<RankState>(rank->state);
      bool rejoins = s.process == Process::running && slot.process == Process::rejoining;
      row["process"] = std::string(to_string(rejoins ? slot.process : s.process));
      row["pid"] = s.pid;
      row["since_us"] = s.since.us;
      // A survivor was started for an older one than it belongs to.
      bool lives = s.process == Process::running;
      row["generation"] = lives ? std::max(s.command.generation, job.running_generation).value
                                : s.command.generation.value;
      if (s.process == Process::exited) row["step"] = s.report.last_step;
    }
    if (auto p = board_.find({id, slot.rank, slot.incarnation})) {
      row["step"] =
          std::max(row["step"].get<int64_t>(), p->step);  // an exit report knows the very last
      row["loss"] = number_or_null(p->loss);
      row["step_seconds"] = p->step_seconds;
      row["stopped"] = p->stopped;
    }
    list.push_back(std::move(row));
  }
  return Json{{"job", id.value}, {"ranks", list}};
}

Json Views::children(const EntityId& id) const {
  Json list = Json::array();
  projection_.for_each([&](const EntityView& view) {
    if (view.id != EntityId::cluster() && parent_of(view.id, view.state) == id)
      list.push_back({{"entity", view.id.path}, {"summary", summary(view.state)}});
  });
  return {{"children", list}};
}

Json Views::events(const std::string& entity, std::optional<uint64_t> from, size_t limit) const {
  std::deque<EventRecord> found;
  auto take = [&](const EventRecord& record) {
    if (watch_matches(entity, record.entity)) found.push_back(record);
    if (from) return found.size() < limit;
    if (found.size() > limit) found.pop_front();
    return true;
  };
  std::string problem;
  auto read = journal_.replay(from.value_or(1), take);
  if (!read) problem = read.error().message;
  Json list = Json::array();
  for (const EventRecord& record : found) list.push_back(event_to_json(record));
  Json out{{"events", list}};
  if (!problem.empty()) out["problem"] = problem;
  return out;
}

std::optional<Json> Views::show(const EntityId& id) const {
  auto view = projection_.find(id);
  if (!view) return std::nullopt;
  Json out = entity_to_json(*view);
  out["parent"] = id == EntityId::cluster() ? Json(nullptr) : Json(parent_of(id, view->state).path);
  out["children"] = children(id)["children"];
  Json events = Json::array();
  if (auto newest = newest_events(journal_, id, 10)) {
    for (const EventRecord& record : *newest) events.push_back(event_to_json(record));
  }
  out["events"] = events;
  return out;
}

Json Views::plan(const JobSpec& spec) const {
  ClusterState c = cluster();
  PlacementRequest request{JobId{c.next_job}, spec.devices, spec.ranks_per_host, {}, {}};
  for (uint32_t r = 0; r < spec.ranks; ++r) request.ranks.push_back({r});
  PlacementResult result = place(c, request);
  return {{"possible", !result.placements.empty()},
          {"reason", result.reason},
          {"placements", to_json(result.placements)}};
}

Json Views::counts() const {
  size_t hosts = 0, up = 0, jobs = 0, active = 0;
  projection_.for_each([&](const EntityView& view) {
    if (auto* host = std::get_if<HostState>(&view.state)) {
      ++hosts;
      up += host->link == HostLink::up;
    } else if (auto* job = std::get_if<JobState>(&view.state)) {
      ++jobs;
      active += !has_ended(job->phase);
    }
  });
  return {{"hosts", hosts},
          {"hosts_up", up},
          {"jobs", jobs},
          {"jobs_active", active},
          {"last_seq", projection_.last_seq()}};
}

}  // namespace regrow
