#include "actors/agent/checkpoint_scan.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "actors/agent/files.h"

namespace regrow {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRank = "{rank}";
constexpr size_t kMostManifestBytes = 16u << 20;

std::string replaced(std::string pattern, const std::string& what, const std::string& by) {
  size_t at = pattern.find(what);
  if (at != std::string::npos) pattern.replace(at, what.size(), by);
  return pattern;
}

// -1 if it does not exist or is no regular file.
int64_t file_size_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return -1;
  auto size = fs::file_size(path, error);
  return error ? -1 : static_cast<int64_t>(size);
}

void add_problem(CheckpointFound& found, const std::string& text) {
  found.problem += (found.problem.empty() ? "" : ", ") + text;
}

// Names in `directory` that match `pattern` with a rank number of `world_size` or more in it.
uint32_t highest_rank_seen(const fs::path& directory, const std::string& pattern) {
  int64_t highest = -1;
  std::string as_step = replaced(pattern, kRank, "{step}");
  std::error_code error;
  for (fs::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    highest = std::max(highest, match_step(as_step, entry->path().filename().string()));
  }
  return static_cast<uint32_t>(highest + 1);
}

void check_shards(const CheckpointRule& rule, uint32_t world_size, CheckpointFound& found) {
  if (rule.shards.empty()) return;
  fs::path directory = found.path;
  if (rule.shards.find(kRank) == std::string::npos) {
    int64_t size = file_size_of(directory / rule.shards);
    if (size < 0) add_problem(found, rule.shards + " missing");
    if (size == 0) add_problem(found, rule.shards + " empty");
    return;
  }
  uint32_t empty = 0;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    int64_t size = file_size_of(directory / replaced(rule.shards, kRank, std::to_string(rank)));
    if (size > 0) found.shards.push_back(rank);
    if (size == 0) ++empty;
  }
  if (found.shards.size() < world_size) {
    std::string text =
        "shards " + std::to_string(found.shards.size()) + "/" + std::to_string(world_size);
    if (empty > 0) text += " (" + std::to_string(empty) + " empty)";
    add_problem(found, text);
    return;
  }
  // All of ours are there, but there are more: the state is spread over another number of ranks.
  uint32_t made_by = highest_rank_seen(directory, rule.shards);
  if (made_by > world_size) {
    add_problem(found,
                "made by " + std::to_string(made_by) + " ranks, not " + std::to_string(world_size));
  }
}

// One line of a manifest: "SIZE NAME".
void check_manifest_line(const std::string& line, const fs::path& directory,
                         CheckpointFound& found) {
  std::istringstream words(line);
  int64_t size = -1;
  std::string name;
  words >> size >> std::ws;
  std::getline(words, name);
  fs::path relative = name;
  bool inside = !name.empty() && relative.is_relative() &&
                std::find(relative.begin(), relative.end(), "..") == relative.end();
  if (size < 0 || !inside)
    return add_problem(found, "manifest line '" + line + "' is not SIZE NAME");
  int64_t actual = file_size_of(directory / relative);
  if (actual < 0) return add_problem(found, name + " missing");
  if (actual != size) {
    add_problem(found,
                name + " has " + std::to_string(actual) + " of " + std::to_string(size) + " bytes");
  }
}

void check_manifest(const CheckpointRule& rule, CheckpointFound& found) {
  if (rule.manifest.empty()) return;
  fs::path directory = found.path;
  auto bytes = read_file(directory / rule.manifest, kMostManifestBytes);
  if (!bytes) return add_problem(found, "manifest missing");
  std::istringstream lines(*bytes);
  std::string line;
  size_t count = 0;
  while (std::getline(lines, line)) {
    if (line.empty()) continue;
    ++count;
    check_manifest_line(line, directory, found);
    if (found.problem.size() > 500) return;
  }
  if (count == 0) add_problem(found, "manifest empty");
}

bool has_a_file(const fs::path& directory) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    if (file_size_of(entry->path()) > 0) return true;
  }
  return false;
}

void check(const CheckpointRule& rule, uint32_t world_size, CheckpointFound& found) {
  std::error_code error;
  if (fs::is_directory(found.path, error)) {
    check_shards(rule, world_size, found);
    found.marker = !rule.marker.empty() && file_exists(found.path + "/" + rule.marker);
    if (!rule.marker.empty() && !found.marker) add_problem(found, "marker missing");
    check_manifest(rule, found);
    bool unchecked = rule.shards.empty() && rule.marker.empty() && rule.manifest.empty();
    if (unchecked && !has_a_file(found.path)) add_problem(found, "empty");
  } else if (file_size_of(found.path) <= 0) {
    add_problem(found, "empty");
  }
  found.complete = found.problem.empty();
}

}  // namespace

int64_t match_step(const std::string& pattern, const std::string& name) {
  constexpr std::string_view kStep = "{step}";
  size_t at = pattern.find(kStep);
  if (at == std::string::npos) return -1;
  std::string_view prefix(pattern.data(), at);
  std::string_view suffix = std::string_view(pattern).substr(at + kStep.size());
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) ||
      !name.ends_with(suffix)) {
    return -1;
  }
  const char* first = name.data() + prefix.size();
  const char* last = name.data() + name.size() - suffix.size();
  if (*first < '0' || *first > '9') return -1;
  int64_t step = -1;
  auto [end, error] = std::from_chars(first, last, step);
  return error == std::errc() && end == last ? step : -1;
}

std::vector<CheckpointFound> scan_checkpoints(const CheckpointRule& rule, uint32_t world_size,
                                              std::string& error) {
  error.clear();
  std::vector<CheckpointFound> all;
  if (rule.directory.empty()) return all;
  std::error_code code;
  fs::directory_iterator entry(rule.directory, code), end;
  for (; !code && entry != end; entry.increment(code)) {
    int64_t step = match_step(rule.entry, entry->path().filename().string());
    if (step >= 0) all.push_back({.step = step, .path = entry->path().string()});
  }
  if (code && code != std::errc::no_such_file_or_directory) {
    error = "cannot read checkpoint directory " + rule.directory + ": " + code.message();
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.step != b.step ? a.step > b.step : a.path < b.path;
  });
  // Down to the newest complete one: what is older matters only if others on other hosts disagree.
  size_t checked = 0;
  bool have_complete = false;
  for (; checked < all.size() && (checked < kMostCheckpointsReported || !have_complete);
       ++checked) {
    check(rule, world_size, all[checked]);
    have_complete = have_complete || all[checked].complete;
  }
  all.resize(checked);
  if (all.size() > kMostCheckpointsReported) {
    CheckpointFound last = all.back();
    all.resize(kMostCheckpointsReported);
    if (have_complete) all.back() = last;
  }
  return all;
}

}  // namespace regrow
