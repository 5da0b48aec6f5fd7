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
  bool is_number = false;  // set flush right
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;  // a cell for each column; the first one names the row
};

// With columns as wide as their content, and two spaces between them.
std::string terminal_table(const Table& table);

// In a box that scrolls where the window is too narrow. `caption` is read by screen readers.
std::string html_table(const Table& table, const std::string& caption);

}  // namespace stagegpt::compare
