// Whatever the file holds, checking it ends within 1 s and 200 MB, and never crashes.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>

#include "tests/catch.h"
#include "tests/recipes/recipe_helpers.h"

namespace regrow::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

struct Cost {
  bool refused = false;  // it ended by itself, and with diagnostics
  double seconds = 0;    // of CPU: the machine may be busy with others
  long megabytes = 0;
};

// Runs `load_it` in a process of its own.
Cost cost_of(const std::function<RecipeResult()>& load_it) {
  pid_t child = fork();
  if (child == 0) {
    RecipeResult result = load_it();
    _exit(!result.spec && !result.diagnostics.empty() && result.diagnostics.size() <= 60 ? 0 : 1);
  }
  int status = 0;
  rusage usage{};
  REQUIRE(wait4(child, &status, 0, &usage) == child);
  auto seconds = [](const timeval& t) { return static_cast<double>(t.tv_sec) + t.tv_usec * 1e-6; };
  return {WIFEXITED(status) && WEXITSTATUS(status) == 0,
          seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_maxrss / 1024};
}

void check_cost(const Cost& cost) {
  CHECK(cost.refused);
  if (kSanitized) return;
  CHECK(cost.seconds < 1);
  CHECK(cost.megabytes < 200);
}

std::string repeat(std::string_view piece, size_t size) {
  std::string text;
  while (text.size() < size) text += piece;
  text.resize(size);
  return text;
}

std::string anchors_bomb() {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i) {
    std::string before = "*a" + std::to_string(i - 1);
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int j = 0; j < 9; ++j) text += (j > 0 ? ", " : "") + before;
    text += "]\n";
  }
  return text;
}

}  // namespace

TEST_CASE("pathological text of the largest size ends within a second and 200 MB") {
  for (const char* piece :
       {"[",           "{",        "- ",      "? ",      "a: ", "[a,",         "{a: ",
        "{a: b, ",     "a: b\n",   "- a\n",   "- - a\n", "a",   "a\n",         "a\n\n",
        "\n",          "#",        "# x\n",   "'",       "\"",  "\"\\x41",     "|\n",
        "&a ",         "&a [",     "*a ",     "!a ",     "!",   "%",           "---\n",
        "...\n",       ":",        ",",       "]",       " ",   "\t",          "\xff",
        "\xc3\xa9",    "\xe2\x82", "key: [",  "{? ",     "- {", "a:\n b:\n  ", "a: >\n x\n\n",
        "a: |\n  x\n", "[\"x\" :", "x: 'y\n", "@",       "`",   "\r",          "\r\n"}) {
    std::string text = repeat(piece, kLargestRecipe);
    INFO(piece);
    check_cost(cost_of([&] { return load(text); }));
  }
}

TEST_CASE("an open bracket before endless small tokens ends within a second and 200 MB") {
  for (const char* piece : {"a,", "[],", "{},", ",", "! ", "\"\" ", "&a ", "*a,", "?,", ": ", "a ",
                            "- ", "a:b,", "#\n", "''", "a\n", "{a,", "]["}) {
    for (const char* start : {"[", "command: [", "{", "a: {b: "}) {
      std::string text = start + repeat(piece, kLargestRecipe - 100);
      INFO(start << piece);
      check_cost(cost_of([&] { return load(text); }));
    }
  }
}

TEST_CASE("many wrong keys, many wrong values and an anchors bomb end within a second") {
  std::string keys, values = "name: x\nranks: 1\ncommand: [", environment = "env:\n";
  for (int i = 0; keys.size() < kLargestRecipe - 100; ++i)
    keys += "rannks_per_hots" + std::to_string(i) + ": 1\n";
  while (values.size() < kLargestRecipe - 100) values += "~, ";
  for (int i = 0; environment.size() < kLargestRecipe - 100; ++i) {
    environment += "  V" + std::to_string(i) + ": x\n";
  }
  check_cost(cost_of([&] { return load(keys); }));
  check_cost(cost_of([&] { return load(values + "]\n"); }));
  check_cost(cost_of([&] { return load(environment); }));
  check_cost(cost_of([&] { return load(anchors_bomb()); }));
  check_cost(cost_of([&] {
    return load(recipe_with("progress: {pattern: '(?P<step>((a{1000}){1000}){9})'}\n"));
  }));
}

TEST_CASE("a file of 10 or 20 MB, or a sparse one without end, is refused at once") {
  std::string path =
      std::filesystem::temp_directory_path() / ("regrow-large-" + std::to_string(getpid()));
  for (size_t size : {10u << 20, 20u << 20}) {
    std::ofstream(path) << repeat("a: b\n", size);
    check_cost(cost_of([&] { return load_recipe_file(path, test_options()); }));
  }
  std::filesystem::resize_file(path, 1ull << 40);
  check_cost(cost_of([&] { return load_recipe_file(path, test_options()); }));
  std::filesystem::remove(path);
}

TEST_CASE("random changes to a valid recipe never crash, hang or pass by throwing") {
  const char* seed_text = std::getenv("REGROW_SEED");
  uint64_t seed = seed_text == nullptr ? 20240607 : std::strtoull(seed_text, nullptr, 10);
  INFO("REGROW_SEED=" << seed);
  std::mt19937_64 random(seed);
  auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  constexpr std::string_view kPieces[] = {
      "\n",   "  ",  "\t",    ": ",    "- ",   "[",    "]",
      "{",    "}",   "\"",    "'",     "#",    "&a ",  "*a",
      "!!x ", "|\n", ">\n",   "---\n", "?",    "<<: ", "\xc3",
      "\xff", "0",   "-",     "e9",    "null", "~",    "%",
      ",",    "\\",  "\\x00", "\r",    "$",    "@",    "999999999999999999999"};
  const int rounds = kSanitized ? 1000 : 5000;
  int good = 0, bad = 0;
  for (int round = 0; round < rounds; ++round) {
    std::string text(kFullRecipe);
    for (size_t changes = 1 + below(6); changes > 0; --changes) {
      size_t at = below(text.size()), length = std::min(below(12), text.size() - at);
      switch (below(4)) {
        case 0:
          text.erase(at, length);
          break;
        case 1:
          text.insert(at, kPieces[below(std::size(kPieces))]);
          break;
        case 2:
          text[at] = static_cast<char>(below(256));
          break;
        default:
          text.insert(below(text.size()), text.substr(at, below(200)));
          break;
      }
      if (text.empty()) text = "x";
    }
    RecipeResult result = load(text);
    // Never both, never neither; and every diagnostic can be printed.
    if (result.spec.has_value() == !result.diagnostics.empty()) {
      INFO(text);
      REQUIRE(false);
    }
    for (const Diagnostic& diagnostic : result.diagnostics) {
      if (diagnostic.message.empty() || diagnostic.line < 0) {
        INFO(text);
        REQUIRE(false);
      }
    }
    (result.spec ? good : bad)++;
  }
  // The changes are neither all harmless nor all fatal.
  CHECK(good > rounds / 100);
  CHECK(bad > rounds / 2);
}

TEST_CASE("random overrides never crash") {
  std::mt19937_64 random(7);
  constexpr std::string_view kWords[] = {
      "ranks", "devices", "env", ".", ".", "=",  "=", "count", "restarts", "hang", "max", "[",
      "]",     "{",       "}",   ":", "4", "-1", "A", "\"",    "\n",       "\xff", "&x",  ""};
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> overrides(1 + random() % 3);
    for (std::string& text : overrides) {
      for (size_t words = random() % 8; words > 0; --words)
        text += kWords[random() % std::size(kWords)];
    }
    RecipeResult result = load(kFullRecipe, overrides);
    REQUIRE(result.spec.has_value() == result.diagnostics.empty());
  }
}

}  // namespace regrow::test
