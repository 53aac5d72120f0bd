// How a story is written down.
#include "tests/golden/story.h"

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/catch.h"
#include "tests/driver/text.h"

namespace regrow::golden {
namespace {

using sim::fields_text;
using sim::seconds_text;
using sim::value_text;

std::string key_text(const IncarnationKey& key) { return value_text(key); }

std::string incarnation_text(Incarnation i) { return "inc=" + std::to_string(i.value); }

// Only what a reader of the story needs; nothing = not shown.
std::optional<std::string> event_text(const EventRecord& r) {
  using R = std::optional<std::string>;
  return std::visit(
      Overloaded{
          [](const ev::MemberChanged&) { return R(); },
          [](const ev::RankAttached&) { return R(); },
          [](const ev::RankDetached&) { return R(); },
          [](const ev::JobHandedOver&) { return R(); },
          [](const ev::HostDeviceListed&) { return R(); },
          [](const ev::DeviceDiscovered&) { return R(); },
          [](const ev::DeviceNoted&) { return R(); },
          [](const ev::GroupUp&) { return R(); },
          [](const ev::JobEndNoted&) { return R(); },
          [](const ev::DevicesReleased&) { return R(); },
          [](const ev::SlotsReleased&) { return R(); },
          [](const ev::ControllerStarted& e) {
            return R("ControllerStarted epoch=" + std::to_string(e.epoch.number));
          },
          [](const ev::JobAccepted& e) {
            return R("JobAccepted " + value_text(e.job) + " " + e.spec.name);
          },
          [](const ev::JobCreated& e) {
            return R("JobCreated ranks=" + std::to_string(e.spec.ranks));
          },
          [](const ev::DeviceHealthChanged& e) {
            return R("DeviceHealthChanged " + std::string(to_string(e.health)));
          },
          [](const ev::DesiredChanged& e) {
            return R("DesiredChanged " + std::string(to_string(e.desired)));
          },
          [](const ev::JobEnded& e) { return R("JobEnded " + std::string(to_string(e.phase))); },
          [](const ev::EndDecided& e) {
            return R("EndDecided " + std::string(to_string(e.phase)));
          },
          [](const ev::JobParked& e) {
            return R("JobParked " + std::string(to_string(e.desired)));
          },
          [](const ev::HostLinkChanged& e) {
            return R("HostLinkChanged " + std::string(to_string(e.link)));
          },
          [](const ev::HostLinkNoted& e) {
            return R("HostLinkNoted " + e.host.value + " " + std::string(to_string(e.link)));
          },
          [](const ev::IncidentOpened& e) {
            ev::IncidentOpened shown = e;
            shown.last_words.clear();
            return R("IncidentOpened class=" + std::string(to_string(e.failure_class)) +
                     (e.charged ? " " : " not charged ") + fields_text(shown));
          },
          [](const ev::RecoveryPlanned& e) { return R("RecoveryPlanned " + fields_text(e)); },
          [](const ev::GroupStopOrdered& e) {
            return R("GroupStopOrdered generation=" + value_text(e.generation) +
                     " ranks=" + value_text(e.ranks));
          },
          [](const ev::GroupStartOrdered& e) {
            return R("GroupStartOrdered generation=" + value_text(e.generation) + " " +
                     std::to_string(e.commands.size()) + " ranks");
          },
          [](const ev::RankSpawning& e) {
            return R("RankSpawning " + incarnation_text(e.command.key.incarnation) +
                     " generation=" + value_text(e.command.generation));
          },
          [](const ev::RankRunning& e) {
            return R("RankRunning " + incarnation_text(e.incarnation));
          },
          [](const ev::RankStopping& e) {
            return R("RankStopping " + incarnation_text(e.incarnation) +
                     (e.command.force ? " force" : ""));
          },
          [](const ev::RankExited& e) {
            std::string text = "RankExited " + incarnation_text(e.incarnation) + " ";
            const RankReport& r = e.report;
            if (r.state != ProcessState::exited) return R(text + std::string(to_string(r.state)));
            return R(text +
                     (r.signal != 0 ? "signal=" + std::to_string(r.signal)
                                    : "exit_code=" + std::to_string(r.exit_code)) +
                     (r.ended_by_us ? " by us" : ""));
          },
          [](const ev::SlotEnded& e) {
            ev::SlotEnded shown = e;
            shown.rank = {};
            return R("SlotEnded " + fields_text(shown));
          },
          [](const ev::SlotRunning& e) {
            return R("SlotRunning " + incarnation_text(e.incarnation));
          },
          [](const auto& e) {
            std::string fields = fields_text(e);
            return R(std::string(e.kTypeName) + (fields.empty() ? "" : " " + fields));
          }},
      r.event);
}

std::string input_text(const Envelope& e) {
  return std::visit(
      Overloaded{[](const in::AgentConnected& m) {
                   return m.hello.name.value + " connects with " +
                          std::to_string(m.hello.devices.size()) + " devices, " +
                          std::to_string(m.hello.ranks.size()) + " incarnations";
                 },
                 [](const in::AgentReport& m) {
                   std::string text = m.host.value + ": " + key_text(m.report.key) + " ";
                   if (m.report.state != ProcessState::exited) {
                     text += std::string(to_string(m.report.state));
                   } else if (m.report.signal != 0) {
                     text += "exited, signal " + std::to_string(m.report.signal);
                   } else {
                     text += "exited, code " + std::to_string(m.report.exit_code);
                   }
                   if (!m.report.error_line.empty()) text += ", \"" + m.report.error_line + "\"";
                   return text;
                 },
                 [](const in::Prepared& m) {
                   std::string text = m.host.value + " is prepared for generation " +
                                      value_text(m.report.generation);
                   if (m.report.port != 0) text += ", port " + std::to_string(m.report.port);
                   for (const CheckpointFound& c : m.report.checkpoints)
                     text += ", step_" + std::to_string(c.step) +
                             (c.complete ? "" : " (" + c.problem + ")");
                   return text;
                 },
                 [](const in::Submit& m) { return "submit " + m.spec.name; },
                 [](const in::SetDesired& m) {
                   return std::string(to_string(m.desired)) + " (" + m.reason + ")";
                 },
                 [](const in::AgentHeartbeat&) { return std::string("a heartbeat"); },
                 [](const in::Progress&) { return std::string("progress"); },
                 [](const in::Tick&) { return std::string("time passes"); },
                 [](const in::StartTerm&) { return std::string("the controller starts"); },
                 [](const auto&) { return std::string(); }},
      e.input);
}

}  // namespace

void Story::heading(const std::string& text) {
  if (heading_ == text && heading_at_ == loop_.now()) return;
  flush();
  heading_ = text;
  heading_at_ = loop_.now();
}

void Story::line(const std::string& entity, const std::string& text, const std::string& reason) {
  if (quiet_) return;
  size_t slash = entity.find_last_of('/');
  bool rank = entity.rfind("rank/", 0) == 0;
  std::string prefix = rank ? entity.substr(0, slash + 1) : entity;
  std::string id = rank ? entity.substr(slash + 1) : "";
  for (Line& l : block_) {
    if (!rank || l.prefix != prefix || l.text != text) continue;
    l.ids.push_back(id);
    return;
  }
  block_.push_back({prefix, {id}, text, reason});
}

void Story::flush() {
  if (!block_.empty()) text_ += "\n> " + seconds_text(heading_at_.us) + " " + heading_ + "\n";
  std::string said;
  for (const Line& l : block_) {
    std::string who = l.prefix;
    for (size_t i = 0; l.ids.size() > 1 && i < l.ids.size(); ++i)
      who += (i == 0 ? "{" : ",") + l.ids[i];
    who += l.ids.size() > 1 ? "}" : l.ids[0];
    text_ += "  " + who + " " + l.text + "\n";
    if (!l.reason.empty() && l.reason != said) text_ += "    because \"" + l.reason + "\"\n";
    said = l.reason;
  }
  block_.clear();
}

void Story::say(const std::string& comment) {
  flush();
  if (!quiet_) text_ += "\n# " + comment + "\n";
}

void Story::appended(const EventRecord& r) {
  auto shown = event_text(r);
  if (auto* e = std::get_if<ev::SlotRunning>(&r.event)) {
    line(EntityId::rank(*r.entity.job_id(), e->rank).path, *shown + " (in the eyes of its job)",
         "");
  } else if (auto* ended = std::get_if<ev::SlotEnded>(&r.event)) {
    line(EntityId::rank(*r.entity.job_id(), ended->rank).path, *shown, "");
  } else if (shown) {
    bool plain = std::holds_alternative<ev::RankRunning>(r.event) ||
                 std::holds_alternative<ev::RankSpawning>(r.event) ||
                 std::holds_alternative<ev::JobCreated>(r.event);
    line(r.entity.path, *shown, plain ? "" : r.reason);
  }
  if (!crash_after_.empty() && crash_after_ == event_name(r.event)) {
    crash_after_.clear();
    loop_.after({}, [this] { crash_controller(crash_down_); });
  }
}

void Story::handled(const EntityHost& host, const Envelope& envelope, const Outbox& out) {
  std::string text = input_text(envelope);
  if (text.empty()) return;
  bool report = std::holds_alternative<in::AgentReport>(envelope.input);
  if (!out.records.empty() || !out.effects.empty() || report ||
      std::holds_alternative<in::SetDesired>(envelope.input))
    heading(text);
  bool ignored = report && out.records.empty() && !host.decisions().empty() &&
                 host.decisions().back().at == loop_.now() &&
                 host.decisions().back().outcome.rfind("ignored", 0) == 0;
  if (ignored) line(host.id().path, host.decisions().back().outcome, "");
}

void Story::check() {
  flush();
  const char* root = std::getenv("REGROW_SOURCE_DIR");
  std::string path = std::string(root == nullptr ? "." : root) + "/tests/golden/" + name_ + ".txt";
  if (std::getenv("REGROW_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text_;
    return;
  }
  std::ifstream file(path);
  std::string expected{std::istreambuf_iterator<char>(file), {}};
  INFO("transcript "
       << path << "; REGROW_UPDATE_GOLDEN=1 writes it anew. By hand, run it in the source folder");
  if (text_ == expected) return;
  size_t at = std::mismatch(text_.begin(), text_.begin() + std::min(text_.size(), expected.size()),
                            expected.begin())
                  .first -
              text_.begin();
  size_t from = text_.rfind('\n', at > 200 ? at - 200 : 0);
  from = from == std::string::npos ? 0 : from;
  FAIL("differs at byte " << at << "\n--- expected\n"
                          << expected.substr(std::min(from, expected.size()), 600) << "\n--- is\n"
                          << text_.substr(from, 600));
}

}  // namespace regrow::golden
