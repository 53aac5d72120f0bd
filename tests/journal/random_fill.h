// Fills any reflected struct, and events of any kind, with random contents. Used by round-trip and
// replay tests; the seed decides everything.
//
//   Filler filler(seed);
//   auto report = filler.make<RankReport>();
//   Event event = filler.event_of_kind(3);
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "journal/reflect_common.h"
#include "supervisors/events.h"

namespace regrow::testing {

class Filler {
 public:
  explicit Filler(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t limit) { return random_() % limit; }
  bool chance(uint64_t one_in) { return below(one_in) == 0; }

  template <class T>
  T make() {
    T value{};
    fill(value);
    return value;
  }

  template <class T>
  void fill(T& value) {
    using P = Plain<T>;
    P& raw = plain(value);
    if constexpr (std::is_same_v<P, bool>) {
      raw = chance(2);
    } else if constexpr (NamedEnum<P>) {
      raw = static_cast<P>(below(enum_names(P{}).size()));
    } else if constexpr (std::is_integral_v<P>) {
      raw = static_cast<P>(chance(3) ? random_() : below(1000));
      if (chance(10))
        raw = chance(2) ? std::numeric_limits<P>::max() : std::numeric_limits<P>::min();
    } else if constexpr (std::is_floating_point_v<P>) {
      raw = std::ldexp(static_cast<double>(random_()), static_cast<int>(below(200)) - 100);
      if (chance(10)) raw = -0.0;
      if (chance(10)) raw = std::numeric_limits<P>::infinity();
      if (chance(10)) raw = std::numeric_limits<P>::denorm_min();
    } else if constexpr (std::is_same_v<P, std::string>) {
      raw = text();
    } else if constexpr (is_vector<P>) {
      raw.resize(chance(3) ? 0 : below(4));
      for (auto& element : raw) fill(element);
    } else {
      P::visit_fields(raw, [this](const char*, auto& field) { fill(field); });
    }
  }

  // Mostly words; sometimes empty, long, or bytes that are no UTF-8.
  std::string text() {
    if (chance(5)) return {};
    std::string out;
    size_t length = chance(20) ? 3000 + below(3000) : below(24);
    bool any_byte = chance(5);
    for (size_t i = 0; i < length; ++i) {
      out += static_cast<char>(any_byte ? below(256) : 'a' + below(26));
    }
    return out;
  }

  Event event_of_kind(size_t kind) {
    Event out;
    make_kind(out, kind, std::make_index_sequence<std::variant_size_v<Event>>{});
    return out;
  }

  EventRecord record_of_kind(size_t kind) {
    EventRecord record;
    record.seq = 1 + below(1u << 30);
    record.entity = entity();
    record.n = 1 + below(1000);
    if (chance(2)) record.caused_by = {entity(), 1 + below(1000)};
    record.at.us = static_cast<int64_t>(1700000000000000 + below(1ull << 40));
    record.reason = text();
    if (chance(2)) record.by = make<Actor>();
    record.event = event_of_kind(kind);
    return record;
  }
  EventRecord record() { return record_of_kind(below(std::variant_size_v<Event>)); }

  EntityId entity() {
    JobId job{below(4)};
    switch (below(6)) {
      case 0:
        return EntityId::cluster();
      case 1:
        return EntityId::host({"h" + std::to_string(below(4))});
      case 2:
        return EntityId::device({"h" + std::to_string(below(4))},
                                {"gpu" + std::to_string(below(8))});
      case 3:
        return EntityId::job(job);
      case 4:
        return EntityId::group(job, {static_cast<uint32_t>(below(3))});
      default:
        return EntityId::rank(job, {static_cast<uint32_t>(below(12))});
    }
  }

 private:
  template <size_t... I>
  void make_kind(Event& out, size_t kind, std::index_sequence<I...>) {
    ((kind == I ? fill(out.emplace<I>()) : void()), ...);
  }

  std::mt19937_64 random_;
};

inline constexpr size_t kEventKinds = std::variant_size_v<Event>;

}  // namespace regrow::testing
