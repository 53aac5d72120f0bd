// A device: what it is and whether it works. The lease of a device is the cluster's to know.
#include "supervisors/machines.h"

namespace regrow {
namespace {

using T = Turn<DeviceState>;

void on_seen(T& t, DeviceLive& live, const in::DeviceSeen& m) {
  // An inventory is the first thing said on a connection: what came over it since is newer.
  bool overtaken = m.inventory && m.session.value != 0 && m.session == live.heard_in;
  if (overtaken) return t.ignore("the agent has said more on this connection since");
  if (!m.inventory) live.heard_in = m.session;
  const DeviceReport& known = t.state().report;
  bool same = known.uid == m.report.uid && known.kind == m.report.kind &&
              known.memory_bytes == m.report.memory_bytes &&
              known.pci_address == m.report.pci_address;
  if (!same)
    t.record(ev::DeviceDiscovered{m.report},
             known.uid.empty() ? "found by the agent"
                               : "another device is in this place: " + m.report.uid);
  DeviceHealth health = m.report.healthy ? DeviceHealth::ok : DeviceHealth::faulty;
  if (health == t.state().health && m.report.fault == t.state().fault)
    return t.ignore("nothing new");
  t.record(ev::DeviceHealthChanged{health, m.report.fault},
           m.report.healthy ? "its probe finds it healthy" : "its probe says: " + m.report.fault);
}

}  // namespace

void decide(Turn<DeviceState>& t, DeviceLive& live) {
  std::visit(
      Overloaded{
          [&](const in::DeviceSeen& m) { on_seen(t, live, m); },
          [&](const in::DeviceMissing& m) {
            if (m.session.value != 0 && m.session == live.heard_in)
              return t.ignore("the agent has listed it on this connection since");
            if (t.state().health == DeviceHealth::unknown) return t.ignore("known");
            t.record(ev::DeviceHealthChanged{DeviceHealth::unknown, "missing"},
                     "the agent does not list it any more");
          },
          [&](const in::Resumed&) {},
          [&](const auto& m) { t.ignore(std::string(m.kTypeName) + " is not for a device"); },
      },
      t.envelope().input);
}

std::vector<Action> pending(const DeviceState& s) {
  if (s.report.name.value.empty()) return {};
  DeviceView view{s.report.name, s.report.kind, s.report.memory_bytes, s.health == DeviceHealth::ok,
                  ""};
  if (!view.usable)
    view.why_not = std::string(to_string(s.health)) + (s.fault.empty() ? "" : " (" + s.fault + ")");
  return {Message{EntityId::cluster(), in::DeviceChanged{s.host, view}}};
}

void apply(DeviceState& s, const EventRecord& r) {
  std::visit(Overloaded{
                 [&](const ev::DeviceDiscovered& e) { s.report = e.report; },
                 [&](const ev::DeviceHealthChanged& e) {
                   s.health = e.health;
                   s.fault = e.fault;
                   s.health_since = r.at;
                 },
                 [&](const ev::EntityQuarantined&) {},
                 [&](const auto& e) {
                   throw BrokenInvariant(std::string(e.kTypeName) + " is not an event of a device");
                 },
             },
             r.event);
}

}  // namespace regrow
