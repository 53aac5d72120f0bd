#include "recipes/recipe.h"

#include <pwd.h>
#include <unistd.h>

#include <exception>
#include <filesystem>
#include <utility>

#include "recipes/overrides.h"
#include "recipes/recipe_file.h"
#include "recipes/report.h"
#include "recipes/validator.h"
#include "recipes/yaml_tree.h"

extern char** environ;

namespace regrow {
namespace {

std::string absolute_path(const std::string& path) {
  std::error_code error;
  std::filesystem::path result = std::filesystem::absolute(path.empty() ? "." : path, error);
  if (error) return "/";
  std::string text = result.lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

RecipeResult finish(JobSpec spec, Report& report) {
  RecipeResult result;
  if (report.empty()) {
    result.spec = std::move(spec);
  } else {
    result.diagnostics = report.take();
  }
  return result;
}

RecipeResult check_tree(YamlNode root, LoadOptions options, Report& report) {
  options.directory = absolute_path(options.directory);
  apply_overrides(root, options.overrides, report);
  JobSpec spec = validate(root, options, report);
  return finish(std::move(spec), report);
}

RecipeResult load_text(std::string_view text, const LoadOptions& options, Report& report) {
  if (text.size() > kLargestRecipe) {
    report.add({1, 1}, "",
               "the recipe has " + std::to_string(text.size()) + " bytes; at most " +
                   std::to_string(kLargestRecipe) + " are read");
    return finish({}, report);
  }
  YamlTree tree = parse_yaml(text);
  for (const YamlProblem& problem : tree.problems) {
    report.add(problem.position, problem.key_path, problem.message, problem.hint);
  }
  if (!tree.complete) return finish({}, report);
  if (tree.root.kind == YamlNode::Kind::null) {
    report.add({1, 1}, "", "the recipe is empty; `regrow init` writes one to begin with");
    return finish({}, report);
  }
  if (tree.root.kind != YamlNode::Kind::map) {
    report.add(tree.root.position, "",
               "a recipe is made of `key: value` lines, this is something else");
    return finish({}, report);
  }
  return check_tree(std::move(tree.root), options, report);
}

// Nothing above is meant to throw; memory may still run out, and a library may know better.
template <class Load>
RecipeResult guarded(std::string_view file, Load&& load) {
  try {
    return load();
  } catch (const std::exception& error) {
    RecipeResult result;
    result.diagnostics = {
        {std::string(file), 0, 0, "", std::string("cannot be read: ") + error.what(), ""}};
    return result;
  }
}

YamlNode text_node(std::string_view text, bool quoted) {
  YamlNode node;
  node.kind = YamlNode::Kind::scalar;
  node.text = text;
  node.quoted = quoted;
  return node;
}

// "train" of `python3 train.py --fast`, "sleep" of `sleep 10`.
std::string name_for(const std::vector<std::string>& argv) {
  std::string_view word = argv[0];
  std::string_view program = word.substr(word.rfind('/') + 1);
  bool runs_scripts = program.starts_with("python") || program == "sh" || program == "bash";
  if (runs_scripts && argv.size() > 1 && !argv[1].starts_with("-")) word = argv[1];
  word = word.substr(word.rfind('/') + 1);
  if (word.ends_with(".py") || word.ends_with(".sh")) word.remove_suffix(3);
  std::string name;
  for (char c : word.substr(0, 60)) {
    bool usable = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '.';
    if (usable || (!name.empty() && c == '-')) name += c;
  }
  while (name.starts_with('.')) name.erase(0, 1);
  return name.empty() ? "command" : name;
}

}  // namespace

RecipeResult load_recipe_file(const std::string& path, const LoadOptions& options) {
  return guarded(path, [&] {
    Report report(path, options.overrides);
    std::string text;
    if (!read_recipe_file(path, text, report)) return finish({}, report);
    LoadOptions resolved = options;
    if (resolved.directory.empty()) {
      resolved.directory = std::filesystem::path(absolute_path(path)).parent_path().string();
    }
    return load_text(text, resolved, report);
  });
}

RecipeResult load_recipe_text(std::string_view text, std::string_view file_name,
                              const LoadOptions& options) {
  return guarded(file_name, [&] {
    Report report(file_name, options.overrides);
    return load_text(text, options, report);
  });
}

RecipeResult spec_for_command(const std::vector<std::string>& argv, const LoadOptions& options) {
  constexpr std::string_view kSource = "regrow run";
  return guarded(kSource, [&] {
    Report report(kSource, options.overrides);
    if (argv.empty()) {
      report.add({}, "", "no command; for example: regrow run -- python3 train.py");
      return finish({}, report);
    }
    YamlNode root, command;
    root.kind = YamlNode::Kind::map;
    command.kind = YamlNode::Kind::list;
    for (const std::string& argument : argv) command.items.push_back(text_node(argument, true));
    root.entries.push_back({"name", {}, text_node(name_for(argv), true)});
    root.entries.push_back({"ranks", {}, text_node("1", false)});
    root.entries.push_back({"command", {}, std::move(command)});
    return check_tree(std::move(root), options, report);
  });
}

LoadOptions options_of_this_process() {
  LoadOptions options;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    std::string_view text = *entry;
    size_t equals = text.find('=');
    if (equals != text.npos)
      options.submitter_environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  options.uid = ::getuid();
  options.gid = ::getgid();
  options.account = account_of(options.uid);
  return options;
}

AccountFacts account_of(uint32_t uid) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return {};
  auto text = [](const char* field) {
    return field == nullptr ? std::string() : std::string(field);
  };
  return {text(entry.pw_name), text(entry.pw_dir), text(entry.pw_shell)};
}

}  // namespace regrow
