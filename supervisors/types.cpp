#include "supervisors/types.h"

#include <vector>

namespace regrow {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.size() <= 19 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string_view> split(std::string_view path) {
  std::vector<std::string_view> parts;
  while (true) {
    size_t slash = path.find('/');
    parts.push_back(path.substr(0, slash));
    if (slash == std::string_view::npos) return parts;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

EntityKind EntityId::kind() const {
  EntityKind kind = EntityKind::unknown;
  from_string(std::string_view(path).substr(0, path.find('/')), kind);
  return kind;
}

std::string_view EntityId::part(size_t index) const {
  auto parts = split(path);
  return index < parts.size() ? parts[index] : std::string_view();
}

std::optional<JobId> EntityId::job_id() const {
  auto k = kind();
  if (k != EntityKind::job && k != EntityKind::group && k != EntityKind::rank) return std::nullopt;
  auto text = part(1);
  JobId id;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id.value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return id;
}

std::optional<EntityId> EntityId::parent() const {
  switch (kind()) {
    case EntityKind::host:
    case EntityKind::job:
      return cluster();
    case EntityKind::device:
      return EntityId{"host/" + std::string(part(1))};
    case EntityKind::group:
    case EntityKind::rank:
      return EntityId{"job/" + std::string(part(1))};
    default:
      return std::nullopt;
  }
}

std::optional<EntityId> parse_entity_id(std::string_view text) {
  EntityId id{std::string(text)};
  auto parts = split(text);
  size_t wanted = 0;
  switch (id.kind()) {
    case EntityKind::cluster:
      wanted = 1;
      break;
    case EntityKind::host:
    case EntityKind::job:
      wanted = 2;
      break;
    case EntityKind::device:
    case EntityKind::group:
    case EntityKind::rank:
      wanted = 3;
      break;
    default:
      return std::nullopt;
  }
  if (parts.size() != wanted) return std::nullopt;
  for (auto part : parts) {
    if (part.empty()) return std::nullopt;
  }
  if (id.job_id() || id.kind() == EntityKind::job || id.kind() == EntityKind::group ||
      id.kind() == EntityKind::rank) {
    for (size_t i = 1; i < parts.size(); ++i) {
      if (!is_number(parts[i])) return std::nullopt;
    }
  }
  return id;
}

}  // namespace regrow
