// A copy of pieces of arenas in host memory, from which a file is written later.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/checkpoint/parameter_file.h"
#include "common/checkpoint/parameter_values.h"

namespace stagegpt {

class PieceCopy {
 public:
  // For some parameters of `arenas` arenas, all without padding. Both arguments are borrowed or copied.
  PieceCopy(const ParameterTable& table, const TableRows& rows, std::size_t arenas);

  // Copies all elements of an arena, piece by piece in the order of file_pieces().
  void take(std::size_t arena, const ParameterValues& values);
  // What was copied. It may be read in another thread.
  ParameterValues values(std::size_t arena) const;

 private:
  std::size_t index_of(std::size_t arena, std::size_t parameter, std::int64_t begin) const;

  const ParameterTable& table_;
  TableRows rows_;
  std::vector<std::size_t> offsets_;  // of the rows in an arena's part; and the size of this part
  std::vector<float> elements_;
};

// Bytes of the copy of the largest of `files` files.
std::size_t bytes_of_copy(const ParameterTable& table, int files, std::size_t arenas);

}  // namespace stagegpt
