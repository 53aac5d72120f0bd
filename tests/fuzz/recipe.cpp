#include "recipes/recipe.h"

#include <algorithm>

#include "actors/agent/files.h"
#include "tests/fuzz/targets.h"

namespace regrow::fuzz {

void recipe(std::string_view bytes) {
  LoadOptions options;
  options.submitter_environment = {{"HF_TOKEN", "secret"}};
  options.uid = 1000;
  options.account = {"ann", "/home/ann", "/bin/bash"};
  options.directory = "/data/job";
  RecipeResult result = load_recipe_text(bytes, "r.yaml", options);
  must(result.spec.has_value() == result.diagnostics.empty(), "a spec or a reason why not");
  must(result.diagnostics.size() <= 60, "a person can read all that is said");
  auto lines = 1 + std::count(bytes.begin(), bytes.end(), '\n');
  for (const Diagnostic& d : result.diagnostics) {
    must(!d.message.empty(), "every diagnostic says something");
    must(d.line >= 0 && d.line <= lines + 1 && d.column >= 0, "a place within the file");
    std::string text = to_string(d);
    must(std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20; }),
         "what is printed on a terminal has no control characters");
    must(valid_utf8(text) == text, "and is UTF-8");
  }
  if (!result.spec) return;
  must(result.spec->ranks >= 1 && !result.spec->command.empty(), "what is accepted can be started");
  must(load_recipe_text(bytes, "r.yaml", options).spec == result.spec,
       "the same text, the same spec");
}

}  // namespace regrow::fuzz
