// The fuzz targets over their corpus and over seeded changes of it. REGROW_FUZZ_ROUNDS: changes per
// target; REGROW_SEED: where to begin; REGROW_FUZZ_KEEP: a file for each input before it is read.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/catch.h"
#include "tests/fuzz/targets.h"

namespace regrow::fuzz {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> corpus_of(const Target& target) {
  const char* root = getenv("REGROW_SOURCE_DIR");
  fs::path directory = fs::path(root != nullptr ? root : ".") / "tests/fuzz/corpus" / target.name;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(directory)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> corpus;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return corpus;
}

uint64_t number_from(const char* variable, uint64_t otherwise) {
  const char* text = getenv(variable);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

class Changer {
 public:
  Changer(const std::vector<std::string>& corpus, uint64_t seed) : corpus_(corpus), random_(seed) {}

  std::string next() {
    std::string bytes = corpus_[below(corpus_.size())];
    for (uint64_t changes = 1 + below(6); changes > 0; --changes) change(bytes);
    return bytes;
  }

 private:
  uint64_t below(uint64_t n) { return n == 0 ? 0 : random_() % n; }

  void change(std::string& bytes) {
    static const std::string kPieces[] = {"0",
                                          "-1",
                                          "4294967296",
                                          "18446744073709551615",
                                          "-9223372036854775808",
                                          std::string(1, '\0'),
                                          "\n",
                                          " ",
                                          ":",
                                          "\xff",
                                          "\xc3\x28",
                                          "é",
                                          "{",
                                          "[",
                                          "- ",
                                          "#",
                                          "\"",
                                          "&a",
                                          "*a",
                                          "\t",
                                          "1e309",
                                          "NaN",
                                          "~"};
    size_t at = below(bytes.size() + 1);
    size_t length = below(std::min<size_t>(bytes.size() - at, 64) + 1);
    switch (below(8)) {
      case 0:
        bytes.erase(at, length);
        break;
      case 1:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 2:
        bytes.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 3:
        bytes.replace(at, length, kPieces[below(std::size(kPieces))]);
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5: {
        const std::string& other = corpus_[below(corpus_.size())];
        size_t from = below(other.size() + 1);
        bytes.insert(at, other.substr(from, below(200)));
        break;
      }
      case 6:
        if (at < bytes.size()) bytes[at] = static_cast<char>(below(256));
        break;
      default:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
    }
  }

  const std::vector<std::string>& corpus_;
  std::mt19937_64 random_;
};

// Changes that a parse of may take long: the recipe's.
uint64_t rounds_of(const Target& target) {
  uint64_t rounds = number_from("REGROW_FUZZ_ROUNDS", 20000);
  return target.run == recipe ? std::max<uint64_t>(rounds / 4, 1) : rounds;
}

}  // namespace

TEST_CASE("every corpus file, and every beginning of it, is come through") {
  for (const Target& target : targets()) {
    INFO("target " << target.name);
    auto corpus = corpus_of(target);
    REQUIRE(corpus.size() >= 3);
    for (const std::string& bytes : corpus) {
      target.run(bytes);
      size_t step = 1 + bytes.size() / 100;
      for (size_t length = 0; length < bytes.size(); length += step)
        target.run(bytes.substr(0, length));
    }
  }
}

TEST_CASE("whatever is changed in a file, reading it is come through") {
  uint64_t seed = number_from("REGROW_SEED", 1);
  for (const Target& target : targets()) {
    auto corpus = corpus_of(target);
    for (uint64_t round = 0; round < rounds_of(target); ++round) {
      INFO("target " << target.name << ", REGROW_SEED=" << seed + round << " REGROW_FUZZ_ROUNDS=1");
      Changer changer(corpus, seed + round);
      std::string bytes = changer.next();
      if (const char* path = getenv("REGROW_FUZZ_KEEP"))
        std::ofstream(path, std::ios::binary) << bytes;
      target.run(bytes);
    }
  }
}

}  // namespace regrow::fuzz
