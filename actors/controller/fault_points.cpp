#include "actors/controller/fault_points.h"

#include <csignal>
#include <sstream>
#include <stdexcept>
#include <unistd.h>

namespace regrow {
namespace {

size_t index_of(std::string_view name) {
  for (size_t i = 0; i < kFaultPoints.size(); ++i) {
    if (kFaultPoints[i] == name) return i;
  }
  std::string known;
  for (auto point : kFaultPoints) known += (known.empty() ? "" : ", ") + std::string(point);
  throw std::invalid_argument("no fault point \"" + std::string(name) + "\"; there are: " + known);
}

}  // namespace

FaultPoints::FaultPoints(const std::string& text) {
  std::istringstream items(text);
  std::string item;
  while (std::getline(items, item, ',')) {
    if (item.empty()) continue;
    size_t colon = item.find(':');
    int64_t count = 1;
    if (colon != std::string::npos) {
      size_t used = 0;
      std::string digits = item.substr(colon + 1);
      try {
        count = std::stoll(digits, &used);
      } catch (const std::exception&) {
        used = 0;
      }
      if (used == 0 || used != digits.size() || count < 1)
        throw std::invalid_argument("fault point \"" + item + "\": the count must be a number from 1");
    }
    left_[index_of(std::string_view(item).substr(0, colon))] = count;
    armed_ = true;
  }
}

void FaultPoints::count(std::string_view name) {
  if (left_[index_of(name)].fetch_sub(1) == 1) {
    kill(getpid(), SIGKILL);
    pause();
  }
}

}  // namespace regrow
