#include "tools/regrow/narration.h"

#include <array>
#include <string_view>
#include <utility>

#include "journal/reflect_common.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

std::string rank_text(const Json& fields) {
  return "rank " + std::to_string(get<uint64_t>(fields, "rank"));
}

std::string step_of(const Json& fields, const char* key) {
  auto step = get<int64_t>(fields, key, -1);
  return step < 0 ? "the beginning" : "step " + std::to_string(step);
}

std::string reason_of(const Json& event) { return one_line(get<std::string>(event, "reason")); }

// "<what>: <reason>", or the one that is there.
std::string with_reason(const std::string& what, const Json& event) {
  std::string reason = reason_of(event);
  if (reason.empty()) return what;
  return what.empty() ? reason : what + ": " + reason;
}

std::string by_whom(const Json& event) {
  std::string who = get<std::string>(event, "by");
  return who.empty() ? "" : " (by " + one_line(who) + ")";
}

std::string hosts_text(const Json& placements) {
  std::vector<std::pair<std::string, std::vector<uint64_t>>> hosts;
  for (const auto& placement : placements) {
    std::string host = get<std::string>(placement, "host");
    auto at = hosts.begin();
    while (at != hosts.end() && at->first != host) ++at;
    if (at == hosts.end()) at = hosts.insert(at, {host, {}});
    at->second.push_back(get<uint64_t>(placement, "rank"));
  }
  std::string out;
  for (const auto& [host, ranks] : hosts) {
    out += (out.empty() ? "" : ", ") + one_line(host) + ": " +
           (ranks.size() == 1 ? "rank " : "ranks ") + ranges_text(ranks);
  }
  return out;
}

Sentence generation_started(const Json& event) {
  const Json& f = child(event, "fields");
  std::string text = "generation " + std::to_string(get<uint64_t>(f, "generation")) +
                     " starts from " + step_of(f, "resume_step");
  Tone tone = Tone::plain;
  for (const auto& rejected : child(f, "rejected")) {
    if (!rejected.is_string()) continue;
    text += "; " + one_line(rejected.get<std::string>());
    tone = Tone::warning;
  }
  return {text, tone};
}

Sentence job_ended(const Json& event) {
  std::string phase = get<std::string>(child(event, "fields"), "phase");
  Tone tone = phase == "completed" ? Tone::good : phase == "failed" ? Tone::bad : Tone::warning;
  // Why it failed stood in end_decided already.
  return {phase == "completed" ? with_reason("job completed", event) : "job " + phase, tone};
}

// Only a real pause is worth a line.
std::optional<Sentence> stage_entered(const Json& event) {
  const Json& f = child(event, "fields");
  auto pause = get<int64_t>(f, "not_before") - get<int64_t>(event, "time_us");
  if (get<std::string>(f, "stage") != "backing_off" || pause <= 0) return std::nullopt;
  return Sentence{with_reason("waiting " + span_text(pause), event), Tone::warning};
}

// A rank's own exit is told by its job (incident_opened); of a stop on request nobody wants a line
// each.
std::optional<Sentence> rank_exited(const Json& event) {
  const Json& report = child(child(event, "fields"), "report");
  if (get<bool>(report, "forced")) {
    return Sentence{
        "rank " + get<std::string>(event, "entity") + " had to be killed: " + reason_of(event),
        Tone::warning};
  }
  return std::nullopt;
}

}  // namespace

std::string kind_of(const Json& event) { return snake_case(get<std::string>(event, "kind")); }

std::optional<Sentence> narrate(const Json& event) {
  std::string kind = kind_of(event);
  const Json& f = child(event, "fields");
  auto number = [&](const char* key) { return std::to_string(get<uint64_t>(f, key)); };

  if (kind == "waiting_noted") return Sentence{with_reason("waiting", event), Tone::warning};
  if (kind == "slots_placed")
    return Sentence{"placed on " + hosts_text(child(f, "placements")), Tone::plain};
  if (kind == "incident_opened") {
    // The reason names rank, host and cause.
    return Sentence{with_reason("incident " + number("incident"), event), Tone::bad};
  }
  if (kind == "incident_reclassified") {
    return Sentence{
        with_reason("the root of incident " + number("incident") + " is " + rank_text(f), event),
        Tone::bad};
  }
  if (kind == "recovery_planned") {
    bool first = get<uint64_t>(f, "incident") == 0;
    return Sentence{with_reason(first ? "starting" : "recovering", event),
                    first ? Tone::plain : Tone::warning};
  }
  if (kind == "stage_entered") return stage_entered(event);
  // Where survivors are, generation_formed tells from what it goes on.
  if (kind == "generation_started" && get<bool>(f, "joins")) return std::nullopt;
  if (kind == "generation_started") return generation_started(event);
  if (kind == "generation_formed") return Sentence{with_reason("", event), Tone::good};
  if (kind == "generation_running") {
    return Sentence{"generation " + number("generation") + " runs", Tone::good};
  }
  if (kind == "host_link_noted") {
    std::string link = get<std::string>(f, "link");
    return Sentence{with_reason("host " + get<std::string>(f, "host") + " is " + link, event),
                    link == "up" ? Tone::good : Tone::warning};
  }
  if (kind == "desired_changed") {
    std::string desired = get<std::string>(f, "desired");
    return Sentence{with_reason(desired, event) + by_whom(event),
                    desired == "hold" ? Tone::bad : Tone::warning};
  }
  if (kind == "job_parked") {
    std::string desired = get<std::string>(f, "desired");
    return Sentence{with_reason(desired == "hold" ? "held" : "paused", event), Tone::warning};
  }
  if (kind == "end_decided") {
    std::string phase = get<std::string>(f, "phase");
    if (phase == "completed") return std::nullopt;
    return Sentence{with_reason("", event), Tone::bad};
  }
  if (kind == "job_ended") return job_ended(event);
  if (kind == "rank_exited") return rank_exited(event);
  if (kind == "budget_refilled") return Sentence{with_reason("", event), Tone::good};
  if (kind == "entity_quarantined") {
    return Sentence{get<std::string>(event, "entity") + " is quarantined: " +
                        one_line(get<std::string>(f, "what")) + "; please report this",
                    Tone::bad};
  }
  return std::nullopt;
}

std::string explain(const Json& event) {
  std::string text = reason_of(event);
  if (text.empty()) {
    const Json& fields = child(event, "fields");
    if (fields.is_object()) {
      for (const auto& [key, value] : fields.items()) {
        if (value.is_object() || value.is_null() || (value.is_array() && value.size() > 8))
          continue;
        if (value.is_string() && value.get<std::string>().empty()) continue;
        if (!text.empty()) text += " ";
        text += key + "=" + (value.is_string() ? one_line(value.get<std::string>()) : dump(value));
      }
    }
  }
  return text + by_whom(event);
}

Tone tone_of(const Json& event) {
  static constexpr std::array<std::pair<std::string_view, Tone>, 12> kTones{{
      {"incident_opened", Tone::bad},
      {"incident_reclassified", Tone::bad},
      {"rank_lost", Tone::bad},
      {"entity_quarantined", Tone::bad},
      {"recovery_planned", Tone::warning},
      {"host_link_changed", Tone::warning},
      {"device_health_changed", Tone::warning},
      {"desired_changed", Tone::warning},
      {"grant_waiting", Tone::warning},
      {"generation_running", Tone::good},
      {"group_up", Tone::quiet},
      {"member_changed", Tone::quiet},
  }};
  std::string kind = kind_of(event);
  for (const auto& [name, tone] : kTones) {
    if (kind == name) return tone;
  }
  return kind == "job_ended" ? job_ended(event).tone : Tone::plain;
}

}  // namespace regrow::cli
