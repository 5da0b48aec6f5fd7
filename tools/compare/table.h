// Tables, for a terminal and for a page.
#pragma once

#include <string>
#include <vector>

namespace stagegpt::compare {

struct Cell {
  enum class Mark { none, good, bad };

  std::string text;
  Mark mark = Mark::none;
};

struct Column {
  std::string name;
  bool is_number = false;  // aligned to the right
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // one cell per column; the first is the row's name
};

// Columns are as wide as their content, with two spaces between them.
std::string terminal_table(const Table& table);

// In a box that scrolls if the window is too narrow. `caption` is for screen readers.
std::string html_table(const Table& table, const std::string& caption);

}  // namespace stagegpt::compare
