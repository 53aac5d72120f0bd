#include "supervisors/placement.h"

#include <algorithm>
#include <set>

#include "tests/catch.h"

using namespace regrow;

namespace {

ClusterState cluster_of(std::vector<std::pair<std::string, int>> hosts) {
  ClusterState s;
  for (const auto& [name, devices] : hosts) {
    HostEntry h;
    h.host = {name};
    h.usable = true;
    for (int i = 0; i < devices; ++i)
      h.devices.push_back({{"gpu" + std::to_string(i)}, "gpu", 80, true, ""});
    s.hosts.push_back(std::move(h));
  }
  std::sort(s.hosts.begin(), s.hosts.end(),
            [](const auto& a, const auto& b) { return a.host < b.host; });
  return s;
}

PlacementRequest want(uint32_t ranks, uint32_t devices = 1) {
  PlacementRequest r;
  r.job = {1};
  r.devices.kind = "gpu";
  r.devices.count = devices;
  for (uint32_t i = 0; i < ranks; ++i) r.ranks.push_back({i});
  return r;
}

std::string text_of(const PlacementResult& result) {
  std::string text;
  for (const Placement& p : result.placements) {
    text += (text.empty() ? "" : " ") + std::to_string(p.rank.value) + "=" + p.host.value;
    for (const auto& d : p.devices) text += "/" + d.value;
  }
  return text;
}

void lease(ClusterState& s, uint64_t job, uint32_t rank, const std::string& host,
           const std::string& device, bool dirty = false) {
  s.leases.push_back({{job}, {rank}, 1, {host}, {{device}}, dirty});
}

bool mentions(const PlacementResult& r, const std::string& text) {
  return r.reason.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("ranks are packed onto the hosts with most room, in order", "[placement]") {
  CHECK(text_of(place(cluster_of({{"h1", 2}, {"h2", 4}, {"h3", 2}}), want(4))) ==
        "0=h2/gpu0 1=h2/gpu1 2=h2/gpu2 3=h2/gpu3");
  CHECK(text_of(place(cluster_of({{"h1", 2}, {"h10", 2}, {"h2", 2}}), want(4))) ==
        "0=h1/gpu0 1=h1/gpu1 2=h2/gpu0 3=h2/gpu1");  // h2 before h10
  CHECK(text_of(place(cluster_of({{"h1", 3}}), want(1, 2))) == "0=h1/gpu0/gpu1");
  CHECK(place(cluster_of({{"h1", 3}}), want(2)).reason == "placed 2 ranks on 1 host: h1");
}

TEST_CASE("a gang is placed as a whole or not at all", "[placement]") {
  auto result = place(cluster_of({{"h1", 2}, {"h2", 1}}), want(4));
  CHECK(result.placements.empty());
  CHECK(mentions(result, "needs 4 gpu devices for 4 ranks, 3 free"));
}

TEST_CASE("what is leased, dirty, faulty or out of reach is not given out", "[placement]") {
  auto s = cluster_of({{"h1", 2}, {"h2", 2}});
  lease(s, 7, 0, "h1", "gpu0");
  lease(s, 1, 9, "h1", "gpu1", true);
  s.hosts[1].devices[0].usable = false;
  s.hosts[1].devices[0].why_not = "xid 79";
  CHECK(text_of(place(s, want(1))) == "0=h2/gpu1");
  s.hosts[1].usable = false;
  s.hosts[1].why_not = "cordoned by uid:0 (fan)";
  auto result = place(s, want(1));
  CHECK(result.placements.empty());
  CHECK(mentions(result, "job/7 holds 1"));
  CHECK(mentions(result, "1 device wait"));
  CHECK(mentions(result, "h2: cordoned by uid:0 (fan)"));
}

TEST_CASE("what a rank held and has left is free for its own request only", "[placement]") {
  auto s = cluster_of({{"h1", 1}});
  lease(s, 1, 0, "h1", "gpu0");
  CHECK(text_of(place(s, want(1))) == "0=h1/gpu0");
  auto lost = want(1);
  lost.dirty = {{0}};
  CHECK(place(s, lost).placements.empty());
  auto other = want(1);
  other.job = {2};
  CHECK(place(s, other).placements.empty());
}

TEST_CASE("hosts to avoid are used only when nothing else fits, and the reason says so",
          "[placement]") {
  auto request = want(2);
  request.avoid_hosts = {{"h1"}};
  CHECK(text_of(place(cluster_of({{"h1", 8}, {"h2", 2}}), request)) == "0=h2/gpu0 1=h2/gpu1");
  auto result = place(cluster_of({{"h1", 8}, {"h2", 1}}), request);
  CHECK(result.placements.size() == 2);
  CHECK(mentions(result, "hosts to avoid had to be used"));
}

TEST_CASE("kind, memory and ranks per host limit what fits", "[placement]") {
  auto s = cluster_of({{"h1", 4}, {"h2", 4}});
  auto request = want(4);
  request.ranks_per_host = 2;
  CHECK(text_of(place(s, request)) == "0=h1/gpu0 1=h1/gpu1 2=h2/gpu0 3=h2/gpu1");
  request = want(5);
  request.ranks_per_host = 2;
  auto result = place(s, request);
  CHECK(result.placements.empty());
  CHECK(mentions(result, "ranks_per_host 2 allows 4 ranks"));
  request = want(1);
  request.devices.kind = "tpu";
  CHECK(place(s, request).placements.empty());
  request.devices.kind = "any";
  request.devices.memory_bytes = 81;
  CHECK(place(s, request).placements.empty());
  request.devices.memory_bytes = 80;
  CHECK_FALSE(place(s, request).placements.empty());
}

TEST_CASE("what no host could ever take is said so", "[placement]") {
  auto s = cluster_of({{"h1", 2}, {"h2", 4}});
  lease(s, 7, 0, "h1", "gpu0");
  CHECK(place(s, want(1, 16)).reason ==
        "no host has 16 gpu devices, as each rank needs; the largest, h2, has 4");
  auto request = want(1);
  request.devices.kind = "tpu";
  CHECK(place(s, request).reason == "no host has a tpu device; there are 6 gpu devices");
  request = want(1);
  request.devices.memory_bytes = 3ull << 30;
  CHECK(place(s, request).reason ==
        "no host has a gpu device with 3 GiB of memory; the largest has 80 bytes");
  // One that is only out of use for now could: that is waited for.
  s.hosts[1].usable = false;
  s.hosts[1].why_not = "cordoned";
  CHECK(mentions(place(s, want(1, 4)), "needs 4 gpu devices"));
  CHECK(mentions(place(s, want(1, 5)), "the largest, h2, has 4"));
}

TEST_CASE("ranks of this job that stay count against ranks per host", "[placement]") {
  auto s = cluster_of({{"h1", 4}, {"h2", 4}});
  lease(s, 1, 5, "h1", "gpu0");
  auto request = want(2);
  request.ranks_per_host = 1;
  CHECK(place(s, request).placements.empty());
  request = want(1);
  request.ranks_per_host = 1;
  CHECK(text_of(place(s, request)) == "0=h2/gpu0");
}

TEST_CASE("ranks without devices need a usable host only", "[placement]") {
  auto s = cluster_of({{"h1", 0}});
  CHECK(text_of(place(s, want(3, 0))) == "0=h1 1=h1 2=h1");
  CHECK(place(cluster_of({}), want(1, 0)).placements.empty());
  CHECK(mentions(place(cluster_of({}), want(1)), "no host has joined yet"));
}

TEST_CASE("no device is given to two ranks", "[placement]") {
  auto result = place(cluster_of({{"h1", 8}, {"h2", 8}, {"h3", 5}}), want(7, 3));
  CHECK(result.placements.empty());  // 2 + 2 + 1 fit
  result = place(cluster_of({{"h1", 8}, {"h2", 8}, {"h3", 5}}), want(5, 3));
  std::set<std::string> seen;
  for (const Placement& p : result.placements) {
    for (const auto& d : p.devices) CHECK(seen.insert(p.host.value + d.value).second);
  }
  CHECK(seen.size() == 15);
}

TEST_CASE("ranks without devices do not take a host down", "[placement]") {
  ClusterState s = cluster_of({{"h1", 2}, {"h2", 2}});
  PlacementResult fits = place(s, want(2 * kMostRanksWithoutDevices, 0));
  CHECK(fits.placements.size() == 2 * kMostRanksWithoutDevices);
  PlacementResult many = place(s, want(2 * kMostRanksWithoutDevices + 1, 0));
  CHECK(many.placements.empty());
  CHECK(many.reason.find("needs room for 2049 ranks, there is room for 2048") == 0);
  PlacementRequest on_purpose = want(2 * kMostRanksWithoutDevices + 1, 0);
  on_purpose.ranks_per_host = 5000;
  CHECK(place(s, on_purpose).placements.size() == on_purpose.ranks.size());
}
