#include "common/train/piece_copy.h"

#include <algorithm>

#include "common/checkpoint/tensor_files.h"

namespace stagegpt {

PieceCopy::PieceCopy(const ParameterTable& table, const TableRows& rows, std::size_t arenas)
    : table_(table), rows_(rows), offsets_{0} {
  for (std::size_t i = rows.begin; i < rows.end; ++i)
    offsets_.push_back(offsets_.back() + static_cast<std::size_t>(table[i].shape.numel()));
  elements_.resize(arenas * offsets_.back());
}

std::size_t PieceCopy::index_of(std::size_t arena, std::size_t parameter, std::int64_t begin) const {
  check(rows_.begin <= parameter && parameter < rows_.end, "piece copy: parameter ", parameter);
  return arena * offsets_.back() + offsets_[parameter - rows_.begin] + static_cast<std::size_t>(begin);
}

void PieceCopy::take(std::size_t arena, const ParameterValues& values) {
  for (const Piece& piece : file_pieces(table_, rows_)) {
    values(piece.parameter, piece.begin,
           std::span(elements_).subspan(index_of(arena, piece.parameter, piece.begin),
                                        static_cast<std::size_t>(piece.size())));
  }
}

ParameterValues PieceCopy::values(std::size_t arena) const {
  return [this, arena](std::size_t i, std::int64_t begin, std::span<float> out) {
    std::ranges::copy(std::span(elements_).subspan(index_of(arena, i, begin), out.size()), out.begin());
  };
}

std::size_t bytes_of_copy(const ParameterTable& table, int files, std::size_t arenas) {
  std::int64_t most = 0;
  for (const TableRows& rows : divide_among_files(table, files)) {
    std::int64_t numel = 0;
    for (std::size_t i = rows.begin; i < rows.end; ++i) numel += table[i].shape.numel();
    most = std::max(most, numel);
  }
  return sizeof(float) * arenas * static_cast<std::size_t>(most);
}

}  // namespace stagegpt
