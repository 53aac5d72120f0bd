// Aligned columns for people.
//
//   Table table({{"JOB", Align::right}, {"NAME"}, {"REASON", Align::left, true}});
//   table.add({"7", "charlm", {"a device is missing", Tone::bad}});
//   std::fputs(table.text(terminal).c_str(), stdout);
//
// Pure; one thread.
#pragma once

#include <string>
#include <vector>

#include "tools/regrow/terminal.h"

namespace regrow::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::left;
  bool flexible = false;  // gives way when the terminal is too narrow
};

struct Cell {
  std::string text;
  Tone tone = Tone::plain;
  Cell(std::string words, Tone how = Tone::plain) : text(std::move(words)), tone(how) {}
  Cell(const char* words) : text(words) {}
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns. Control characters are made harmless here.
  void add(std::vector<Cell> row);
  size_t rows() const { return rows_.size(); }

  // Title line, then the rows, each ended by a newline. Without a terminal nothing is cut.
  std::string text(const Terminal& terminal) const;

 private:
  std::vector<size_t> widths(size_t limit) const;

  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace regrow::cli
