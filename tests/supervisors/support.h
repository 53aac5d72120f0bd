// Short ways to say what these tests need.
#pragma once

#include <string>
#include <vector>

#include "supervisors/engine.h"
#include "supervisors/machines.h"

namespace regrow::test {

inline Now at(int64_t seconds) { return {Time{Duration::seconds(seconds).us}, Time{}}; }

inline Envelope input(EntityId to, Input in, RequestId request = {}) {
  return {std::move(to), {}, request, {"uid:1000", "operator"}, std::move(in)};
}

inline IncarnationKey key(uint32_t rank, uint32_t incarnation, uint64_t job = 1) {
  return {{job}, {rank}, {incarnation}};
}

inline SpawnCommand spawn(uint32_t rank, uint32_t incarnation) {
  SpawnCommand c;
  c.key = key(rank, incarnation);
  c.generation = {incarnation};
  return c;
}

inline RankReport report(ProcessState state, uint32_t rank, uint32_t incarnation, int32_t code = 0,
                         int32_t signal = 0) {
  RankReport r;
  r.key = key(rank, incarnation);
  r.state = state;
  r.exit_code = code;
  r.signal = signal;
  r.group_gone_us = 1;
  return r;
}

template <class E>
const E* only_event(const Outbox& out) {
  return out.records.size() == 1 ? std::get_if<E>(&out.records[0].event) : nullptr;
}

template <class E>
std::vector<E> effects_of(const Outbox& out) {
  std::vector<E> found;
  for (const Effect& e : out.effects) {
    if (auto* x = std::get_if<E>(&e)) found.push_back(*x);
  }
  return found;
}

template <class M>
std::vector<M> messages_of(const Outbox& out) {
  std::vector<M> found;
  for (const Envelope& e : out.messages) {
    if (auto* x = std::get_if<M>(&e.input)) found.push_back(*x);
  }
  return found;
}

inline JobSpec spec_of(uint32_t ranks) {
  JobSpec spec;
  spec.name = "demo";
  spec.ranks = ranks;
  spec.devices.kind = "sim";
  spec.progress_pattern = "step";
  spec.checkpoint.directory = "/ckpt";
  for (size_t c = 0; c < FailureClass_names.size(); ++c)
    spec.intensity.push_back({static_cast<FailureClass>(c), 3, {}});
  return spec;
}

}  // namespace regrow::test
