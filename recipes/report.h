// Collects what is wrong with one recipe. Used by one load at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipes/diagnostic.h"

namespace regrow {

class Report {
 public:
  // `overrides` outlives the report.
  Report(std::string_view file, const std::vector<std::string>& overrides)
      : file_(file), overrides_(overrides) {}

  void add(SourcePosition position, std::string_view key_path, std::string message,
           std::string_view hint = {});

  // Further problems are only counted: no need to find good words for them.
  bool full() const { return diagnostics_.size() >= kMost; }
  bool empty() const { return diagnostics_.empty(); }

  // In file order, then overrides; the last one says how many more there are.
  std::vector<Diagnostic> take();

 private:
  static constexpr size_t kMost = 20;

  struct Entry {
    SourcePosition position;
    Diagnostic diagnostic;
  };

  std::string file_;
  const std::vector<std::string>& overrides_;
  std::vector<Entry> diagnostics_;
  size_t dropped_ = 0;
};

}  // namespace regrow
