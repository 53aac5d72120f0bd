#include "recipes/report.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace regrow {

void Report::add(SourcePosition position, std::string_view key_path, std::string message,
                 std::string_view hint) {
  if (full()) {
    ++dropped_;
    return;
  }
  Diagnostic diagnostic{file_,
                        position.line,
                        position.column,
                        std::string(key_path),
                        std::move(message),
                        std::string(hint)};
  if (position.override_index >= 0) {
    diagnostic.file =
        "--set " + printable(overrides_[static_cast<size_t>(position.override_index)]);
    diagnostic.line = diagnostic.column = 0;
  }
  diagnostics_.push_back({position, std::move(diagnostic)});
}

std::vector<Diagnostic> Report::take() {
  std::stable_sort(diagnostics_.begin(), diagnostics_.end(), [](const Entry& a, const Entry& b) {
    return std::tuple(a.position.override_index, a.position.line, a.position.column) <
           std::tuple(b.position.override_index, b.position.line, b.position.column);
  });
  std::vector<Diagnostic> result;
  for (Entry& entry : diagnostics_) result.push_back(std::move(entry.diagnostic));
  if (dropped_ > 0) {
    std::string more =
        "and " + std::to_string(dropped_) + (dropped_ == 1 ? " more problem" : " more problems");
    result.push_back({file_, 0, 0, "", more, ""});
  }
  diagnostics_.clear();
  dropped_ = 0;
  return result;
}

}  // namespace regrow
