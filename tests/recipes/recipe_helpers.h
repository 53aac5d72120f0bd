// What the recipe tests share: a valid recipe, loading from text, and a JobSpec as readable lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipes/recipe.h"
#include "supervisors/reflect.h"

namespace regrow::test {

// Valid, and with something of everything.
inline constexpr std::string_view kFullRecipe = R"(# everything a recipe can say
name: charlm
ranks: 8
groups: 2
spares: 1
ranks_per_host: 4
devices: {kind: gpu, count: 2, memory: 80GB}
interpreter: /usr/bin/python3
command: [train.py, --lr, 1e-3, "", "a b", yes]
requires: [torch, torch.distributed]
working_directory: code
env:
  OMP_NUM_THREADS: 1
  RATIO: 1.10
  DEBUG: true
  COUNTRY: NO
  GREETING: "grüß: dich"
  EMPTY: ""
pass_env: [HF_TOKEN, NOT_SET]
limits:
  nofile: 65536
checkpoint:
  directory: out/checkpoints/
  storage: host_local
  entry: ckpt-{step}
  shards: rank_{rank}.pt
  marker: COMPLETE
  manifest: sizes.txt
recovery: group
restarts:
  program: 5
  killed: {max: unlimited}
  hang: {max: 2, window: 1h}
  device: {max: 7}
  max_without_progress: 4
  healthy_for: 1.5h
  backoff: {initial: 500ms, cap: 2m}
success: rank_zero
rendezvous: store
timeouts:
  start: 2m
  progress: 90s
  stop_grace: 30s
  finish: 2m
  host: 15s
  max_unreachable: 1h
  rejoin: 45s
stop: {signal: USR1, scope: group}
progress:
  pattern: 'step (?P<step>\d+).*loss (?P<loss>\S+)'
  total_steps: 1000
logs: {cap: 32MiB, segment: 4MiB}
)";

inline LoadOptions test_options() {
  LoadOptions options;
  options.submitter_environment = {{"HF_TOKEN", "secret"}, {"EDITOR", "vi"}};
  options.uid = 1000;
  options.gid = 100;
  options.account = {"ann", "/home/ann", "/bin/bash"};
  options.directory = "/data/job";
  return options;
}

inline RecipeResult load(std::string_view text, std::vector<std::string> overrides = {}) {
  LoadOptions options = test_options();
  options.overrides = std::move(overrides);
  return load_recipe_text(text, "r.yaml", options);
}

// The shortest valid recipe, and `more` below it.
inline std::string recipe_with(std::string_view more) {
  return "name: x\nranks: 4\ncommand: [run]\n" + std::string(more);
}

template <class T>
std::string value_text(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return '"' + value + '"';
  } else if constexpr (std::is_same_v<T, Duration>) {
    return std::to_string(value.us) + "us";
  } else if constexpr (std::is_enum_v<T>) {
    return std::string(to_string(value));
  } else if constexpr (is_vector<T>) {
    std::string text;
    if constexpr (Reflected<typename T::value_type>) {
      for (const auto& item : value) text += "\n  " + value_text(item);
      return text;
    }
    for (const auto& item : value) text += (text.empty() ? "" : ", ") + value_text(item);
    return "[" + text + "]";
  } else if constexpr (Reflected<T>) {
    std::string text;
    T::visit_fields(value, [&](const char*, const auto& field) {
      text += (text.empty() ? "" : " ") + value_text(field);
    });
    return "{" + text + "}";
  } else {
    return std::to_string(value);
  }
}

// One line per field.
inline std::string dump(const JobSpec& spec) {
  std::string text;
  JobSpec::visit_fields(spec, [&](const char* name, const auto& field) {
    std::string value = value_text(field);
    text += name + std::string(value.starts_with('\n') ? "" : " ") + value + "\n";
  });
  return text;
}

}  // namespace regrow::test
