#include "tools/regrow/entity_text.h"

#include <chrono>
#include <thread>

#include "tools/regrow/narration.h"
#include "tools/regrow/state_text.h"
#include "tools/regrow/table.h"
#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

constexpr int kAsks = 5;
constexpr auto kAskAgain = std::chrono::milliseconds(30);

std::string padded(std::string text, size_t width) {
  size_t have = display_width(text);
  if (have < width) text.append(width - have, ' ');
  return text;
}

const Json& newest_state(const Json& answer) {
  const Json& live = child(child(answer, "actor"), "state");
  return live.is_object() ? live : child(answer, "state");
}

}  // namespace

Result<Json> ask_entity(AdminClient& client, const std::string& entity) {
  Result<Json> answer = client.query("show", {{"entity", entity}});
  for (int asks = 1; asks < kAsks && answer; ++asks) {
    const Json& actor = child(*answer, "actor");
    if (!get<bool>(actor, "alive") || get<bool>(actor, "equal_to_journal")) break;
    std::this_thread::sleep_for(kAskAgain);
    answer = client.query("show", {{"entity", entity}});
  }
  return answer;
}

std::string head_text(const Json& answer) {
  std::string text =
      get<std::string>(answer, "entity") + ": " + count_text(get<uint64_t>(answer, "n"), "event");
  std::string parent = get<std::string>(answer, "parent");
  if (!parent.empty()) text += ", below " + parent;
  const Json& children = child(answer, "children");
  if (children.is_array() && !children.empty())
    text += ", " + count_text(children.size(), "child", "children");
  std::string quarantined = get<std::string>(answer, "quarantined");
  if (!quarantined.empty()) text += "\nQUARANTINED: " + one_line(quarantined);
  return text + "\n";
}

std::string full_state_text(const Json& answer, const Terminal& terminal) {
  const Json& actor = child(answer, "actor");
  std::string note;
  Tone tone = Tone::quiet;
  if (!get<bool>(actor, "alive")) {
    note = "its actor does not run; this is the fold of its journal";
    tone = Tone::warning;
  } else if (get<bool>(actor, "equal_to_journal")) {
    note = "the actor's own, equal to the fold of its journal";
  } else {
    note = "NOT equal to the fold of its journal; this is the actor's own";
    tone = Tone::bad;
  }
  return "state (" + terminal.paint(tone, note) + ")\n" + state_text(newest_state(answer), 2);
}

std::string actor_text(const Json& answer) {
  const Json& actor = child(answer, "actor");
  if (!get<bool>(actor, "alive")) return "actor: not running\n";
  auto waiting = get<uint64_t>(actor, "mailbox");
  auto restarts = get<uint64_t>(actor, "restarts");
  return "actor: " + count_text(waiting, "message") + " waiting, restarted " +
         count_text(restarts, "time") + "\n";
}

std::string children_text(const Json& children, const Terminal& terminal) {
  Table table({{"ENTITY"}, {"SUMMARY", Align::left, true}});
  for (const auto& entity : children) {
    if (entity.is_string())
      table.add({entity.get<std::string>(), ""});
    else
      table.add({get<std::string>(entity, "entity"), get<std::string>(entity, "summary")});
  }
  return table.rows() == 0 ? "no children\n" : table.text(terminal);
}

std::string decisions_text(const Json& answer, const Terminal& terminal) {
  const Json& decisions = child(child(answer, "actor"), "decisions");
  if (!decisions.is_array() || decisions.empty()) return "no decision since its actor started\n";
  std::string text;
  for (const auto& decision : decisions) {
    std::string head = clock_text(get<int64_t>(decision, "at_us")) + "  " +
                       padded(one_line(get<std::string>(decision, "input")), 24) + "  ";
    std::string outcome = one_line(get<std::string>(decision, "outcome"));
    Tone tone = outcome.starts_with("ignored") ? Tone::quiet : Tone::plain;
    size_t used = display_width(head);
    bool narrow = terminal.width > 0 && terminal.width <= used + 20;
    text +=
        head +
        terminal.paint(
            tone, terminal.width == 0 || narrow ? outcome : fit(outcome, terminal.width - used)) +
        "\n";
  }
  return text;
}

std::string event_line(const Json& event, const Terminal& terminal, bool with_entity) {
  auto seq = std::to_string(get<uint64_t>(event, "seq"));
  std::string head = std::string(seq.size() < 6 ? 6 - seq.size() : 0, ' ') + seq + "  " +
                     clock_text(get<int64_t>(event, "time_us")) + "  ";
  if (with_entity) head += padded(one_line(get<std::string>(event, "entity")), 12) + "  ";
  std::string kind = padded(one_line(kind_of(event)), 22);
  std::string words = explain(event);
  size_t used = display_width(head) + display_width(kind) + 2;
  if (terminal.width > used + 20) words = fit(words, terminal.width - used);
  std::string line = head + terminal.paint(tone_of(event), kind) + "  " + words;
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

std::string events_text(const Json& events, const Terminal& terminal, bool with_entity) {
  std::string text;
  for (const auto& event : events) text += event_line(event, terminal, with_entity);
  return text.empty() ? "no events\n" : text;
}

}  // namespace regrow::cli
