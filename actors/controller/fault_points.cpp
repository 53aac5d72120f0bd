#include "actors/controller/fault_points.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <sstream>

namespace regrow {
namespace {

std::string_view known_name(std::string_view name) {
  auto found = std::find(kFaultPoints.begin(), kFaultPoints.end(), name);
  if (found != kFaultPoints.end()) return *found;
  std::string known;
  for (auto point : kFaultPoints) known += (known.empty() ? "" : ", ") + std::string(point);
  throw std::invalid_argument("no fault point \"" + std::string(name) + "\"; there are: " + known);
}

int64_t parse_count(const std::string& digits, const std::string& item) {
  size_t used = 0;
  int64_t count = 0;
  try {
    count = std::stoll(digits, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != digits.size() || count < 1)
    throw std::invalid_argument("fault point \"" + item + "\": the count must be a number from 1");
  return count;
}

}  // namespace

FaultPoints::FaultPoints(const std::string& text) {
  std::istringstream items(text);
  std::string item;
  while (std::getline(items, item, ',')) {
    if (!item.empty()) arm(item);
  }
}

void FaultPoints::arm(const std::string& item) {
  std::istringstream parts(item);
  std::string place, part;
  std::getline(parts, place, ':');
  Armed& armed = armed_.emplace_back();
  size_t at = place.find('@');
  armed.name = known_name(std::string_view(place).substr(0, at));
  if (at != std::string::npos) armed.entity = place.substr(at + 1);
  while (std::getline(parts, part, ':')) {
    if (part == "throw")
      armed.throws = true;
    else
      armed.left = parse_count(part, item);
  }
  if (item.back() == ':') parse_count("", item);
  if ((armed.throws || at != std::string::npos) && !armed.name.starts_with("entity."))
    throw std::invalid_argument("fault point \"" + item +
                                "\": only points entity.* belong to an entity and can throw");
}

void FaultPoints::count(std::string_view name, std::string_view entity) {
  for (Armed& armed : armed_) {
    if (armed.name != name || (!armed.entity.empty() && armed.entity != entity)) continue;
    if (armed.left.fetch_sub(1) != 1) continue;
    if (armed.throws)
      throw FaultInjected("fault point " + std::string(name) + " of " + std::string(entity));
    kill(getpid(), SIGKILL);
    pause();
  }
}

}  // namespace regrow
