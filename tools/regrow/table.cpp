#include "tools/regrow/table.h"

#include <algorithm>
#include <cstddef>

#include "tools/regrow/text.h"

namespace regrow::cli {

namespace {

constexpr size_t kGap = 2;
constexpr size_t kNarrowest = 8;  // a flexible column keeps this much

void put(std::string& line, const Cell& cell, const Column& column, size_t width, bool last,
         const Terminal& terminal) {
  std::string text = fit(cell.text, width);
  std::string blanks(width - std::min(width, display_width(text)), ' ');
  std::string painted = terminal.paint(cell.tone, text);
  if (column.align == Align::right) {
    line += blanks + painted;
  } else {
    line += painted + (last ? "" : blanks);
  }
  if (!last) line.append(kGap, ' ');
}

}  // namespace

void Table::add(std::vector<Cell> row) {
  row.resize(columns_.size(), Cell(""));
  for (auto& cell : row) cell.text = one_line(cell.text);
  rows_.push_back(std::move(row));
}

std::vector<size_t> Table::widths(size_t limit) const {
  std::vector<size_t> width;
  for (const auto& column : columns_) width.push_back(display_width(column.title));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i)
      width[i] = std::max(width[i], display_width(row[i].text));
  }
  if (limit == 0) return width;
  size_t total = kGap * (width.size() - 1);
  for (size_t w : width) total += w;
  // From the right: what comes last is usually prose.
  for (size_t i = columns_.size(); i-- > 0 && total > limit;) {
    if (!columns_[i].flexible || width[i] <= kNarrowest) continue;
    size_t cut = std::min(total - limit, width[i] - kNarrowest);
    width[i] -= cut;
    total -= cut;
  }
  return width;
}

std::string Table::text(const Terminal& terminal) const {
  auto width = widths(terminal.width);
  std::string out;
  auto add_line = [&](auto cell_at) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      put(line, cell_at(i), columns_[i], width[i], i + 1 == columns_.size(), terminal);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) { return Cell(columns_[i].title, Tone::strong); });
  for (const auto& row : rows_) {
    add_line([&](size_t i) -> const Cell& { return row[i]; });
  }
  return out;
}

}  // namespace regrow::cli
