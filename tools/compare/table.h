// Tables, for a terminal and for a page.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/grouped.h"

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

// ---- Numbers as text

// Three significant digits: "0.123", "4.56", "78.9", "12,345".
std::string three_digits(double value);
// "1.2e-7", "1e-5"; "0" and "infinite".
std::string scientific(double value);
// The shortest text that gives the same number when it is parsed.
std::string exactly(double value);
// "1 core", "2 cores".
std::string counted(std::int64_t count, const char* thing);
// "12.3 %".
std::string percent(double share);
// "12.3 MiB".
std::string mebibytes(std::int64_t bytes);

}  // namespace stagegpt::compare
