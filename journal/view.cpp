#include "journal/view.h"

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "journal/reflect_json.h"

namespace regrow {

std::string iso_time(Time time) {
  int64_t micros = time.us % 1000000;
  int64_t seconds = time.us / 1000000;
  if (micros < 0) {
    micros += 1000000;
    --seconds;
  }
  std::time_t clock = static_cast<std::time_t>(seconds);
  std::tm parts{};
  if (gmtime_r(&clock, &parts) == nullptr) return std::to_string(time.us) + "us";
  char date[64];
  std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &parts);
  char fraction[16];
  std::snprintf(fraction, sizeof(fraction), ".%06dZ", static_cast<int>(micros));
  return std::string(date) + fraction;
}

nlohmann::json event_to_json(const EventRecord& record) {
  nlohmann::json out;
  out["seq"] = record.seq;
  out["n"] = record.n;
  out["time_us"] = record.at.us;
  out["time"] = iso_time(record.at);
  out["entity"] = record.entity.path;
  out["kind"] = snake_case(event_name(record.event));
  out["reason"] = record.reason;
  bool by_someone = record.by != Actor{};
  out["by"] = by_someone ? nlohmann::json(record.by.who) : nlohmann::json(nullptr);
  out["role"] = by_someone ? nlohmann::json(record.by.role) : nlohmann::json(nullptr);
  out["caused_by"] = record.caused_by.n > 0 ? to_json(record.caused_by) : nlohmann::json(nullptr);
  out["fields"] = std::visit([](const auto& event) { return to_json(event); }, record.event);
  return out;
}

nlohmann::json entity_to_json(const EntityView& entity) {
  nlohmann::json out;
  out["entity"] = entity.id.path;
  out["kind"] = std::string(to_string(entity.id.kind()));
  out["n"] = entity.n;
  out["seq"] = entity.last_seq;
  out["time_us"] = entity.last_at.us;
  out["time"] = iso_time(entity.last_at);
  out["quarantined"] =
      entity.quarantined.empty() ? nlohmann::json(nullptr) : nlohmann::json(entity.quarantined);
  out["state"] = std::visit(
      []<class S>(const S& state) {
        if constexpr (std::is_same_v<S, std::monostate>)
          return nlohmann::json(nullptr);
        else
          return to_json(state);
      },
      entity.state);
  return out;
}

}  // namespace regrow
