#include "common/checkpoint/tensor_files.h"

#include <algorithm>
#include <array>
#include <future>
#include <sstream>

#include "common/base/json.h"

namespace stagegpt {
namespace {

bool is_transposed(const Parameter& parameter) {
  const std::string& name = parameter.name;
  return parameter.shape.rank() == 2 && (name.starts_with("h.") || name.starts_with("transformer.h."));
}

std::vector<std::int64_t> file_shape(const Parameter& parameter) {
  std::vector<std::int64_t> shape(parameter.shape.dims().begin(), parameter.shape.dims().end());
  if (is_transposed(parameter)) std::ranges::reverse(shape);
  return shape;
}

// out (columns,rows) = inᵀ, in (rows,columns). Works in tiles, so that whole cache lines are read and
// written.
void transpose(std::span<const float> in, std::int64_t rows, std::int64_t columns, std::span<float> out) {
  constexpr std::int64_t kTile = 32;
  for (std::int64_t column = 0; column < columns; column += kTile) {
    for (std::int64_t row = 0; row < rows; row += kTile) {
      for (std::int64_t c = column; c < std::min(column + kTile, columns); ++c) {
        for (std::int64_t r = row; r < std::min(row + kTile, rows); ++r)
          out[c * rows + r] = in[r * columns + c];
      }
    }
  }
}

// Holds a piece between the device and the file.
class Buffer {
 public:
  void fetch(const ParameterValues& values, const Piece& piece) {
    fetched_.resize(static_cast<std::size_t>(piece.size()));
    values(piece.parameter, piece.begin, fetched_);
  }
  // The fetched elements in the file's order.
  std::span<const float> in_file_order(const Parameter& parameter) {
    if (!is_transposed(parameter)) return fetched_;
    transposed_.resize(fetched_.size());
    transpose(fetched_, parameter.shape[0], parameter.shape[1], transposed_);
    return transposed_;
  }

 private:
  std::vector<float> fetched_, transposed_;
};

// Elements [begin, begin + out.size()) of a matrix (rows,columns) whose transpose (columns,rows) is stored.
void read_transposed(const SafetensorsView& view, const Shape& shape, std::int64_t begin,
                     std::span<float> out) {
  if (out.empty()) return;
  const std::int64_t rows = shape[0], columns = shape[1], first = begin / columns;
  const std::int64_t height = (begin + std::ssize(out) - 1) / columns + 1 - first;  // of the rows with them
  std::vector<float> stored(static_cast<std::size_t>(columns * height));
  for (std::int64_t column = 0; column < columns; ++column) {
    to_floats(view, column * rows + first,
              std::span(stored).subspan(static_cast<std::size_t>(column * height),
                                        static_cast<std::size_t>(height)));
  }
  if (std::size(stored) == out.size()) return transpose(stored, columns, height, out);
  std::vector<float> whole(stored.size());
  transpose(stored, columns, height, whole);
  std::ranges::copy(std::span(whole).subspan(static_cast<std::size_t>(begin - first * columns), out.size()),
                    out.begin());
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  constexpr std::size_t kShown = 60;
  std::ostringstream text;
  for (std::size_t i = 0; i < shape.size(); ++i) text << (i ? ", " : "") << shape[i];
  return concat("(", text.str().substr(0, kShown), ")");
}

std::vector<Piece> file_pieces(const ParameterTable& table) {
  constexpr std::int64_t kElements = 1 << 20;
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::int64_t numel = table[i].shape.numel(), step = is_transposed(table[i]) ? numel : kElements;
    for (std::int64_t begin = 0; begin < numel; begin += step)
      pieces.push_back({i, begin, std::min(begin + step, numel)});
  }
  return pieces;
}

namespace fs = std::filesystem;

constexpr const char* kEnding = ".safetensors";

}  // namespace

FileEntry write_parameters(const std::filesystem::path& path, const ParameterTable& table,
                           const std::vector<ParameterGroup>& groups) {
  std::vector<SafetensorsWriter::TensorInfo> tensors;
  for (const ParameterGroup& group : groups) {
    for (const Parameter& row : table.rows()) tensors.push_back({group.prefix + row.name, file_shape(row)});
  }
  SafetensorsWriter writer(path, tensors);
  // While one piece is written, another thread transposes the next one, which is already fetched. Only this
  // thread accesses the device.
  std::array<Buffer, 2> buffers;
  std::future<std::span<const float>> ready;
  std::size_t n = 0;
  for (const ParameterGroup& group : groups) {
    for (const Piece& piece : file_pieces(table)) {
      Buffer& buffer = buffers[n++ % 2];
      buffer.fetch(group.values, piece);
      auto next = std::async(std::launch::async, [&buffer, &parameter = table[piece.parameter]] {
        return buffer.in_file_order(parameter);
      });
      if (ready.valid()) writer.append(ready.get());
      ready = std::move(next);
    }
  }
  writer.append(ready.get());
  return writer.finish();
}

ParameterValues safetensors_values(const ParameterTable& table, const SafetensorsViews& tensors,
                                   const std::string& prefix) {
  std::vector<SafetensorsView> views;  // of the parameters
  for (const Parameter& row : table.rows()) {
    const auto tensor = tensors.find(prefix + row.name);
    if (tensor == tensors.end()) user_error("the tensor ", prefix, row.name, " is missing");
    const SafetensorsView& view = tensor->second;
    if (view.shape != file_shape(row)) {
      user_error("the tensor ", prefix, row.name, " has the shape ", shape_text(view.shape), ", expected ",
                 shape_text(file_shape(row)));
    }
    if (!is_floating_point(view))
      user_error("the tensor ", prefix, row.name, " has the dtype ", view.dtype,
                 ", expected F32, F16 or BF16");
    views.push_back(view);
  }
  return [views = std::move(views), table](std::size_t i, std::int64_t begin, std::span<float> out) {
    const Parameter& row = table[i];
    is_transposed(row) ? read_transposed(views[i], row.shape, begin, out) : to_floats(views[i], begin, out);
  };
}

ParameterValues file_values(const std::shared_ptr<TensorFiles>& files, const ParameterTable& table,
                            const std::string& prefix) {
  return [files, values = safetensors_values(table, files->tensors(), prefix)](
             std::size_t i, std::int64_t begin, std::span<float> out) { values(i, begin, out); };
}

std::string tensor_file_name(std::string_view name) { return concat(name, kEnding); }

std::string tensor_index_name(std::string_view name) { return concat(name, kEnding, ".index.json"); }

std::set<std::string> files_of_index(const fs::path& index) {
  return naming(index, [&] {
    const MappedFile file(index, index.filename().string());
    const nlohmann::json json = parse_json(file.text());
    return read_json([&] {
      std::set<std::string> files;
      for (const auto& [tensor, name] : json.at("weight_map").items()) {
        const auto text = name.get<std::string>();
        if (text.empty() || fs::path(text).filename() != text)
          user_error("'", text.substr(0, 80), "' is not the name of a file");
        files.insert(text);
      }
      return files;
    });
  });
}

TensorFiles::TensorFiles(const fs::path& directory, std::string_view name, const Rename& rename) {
  const fs::path single = directory / tensor_file_name(name), index = directory / tensor_index_name(name);
  path_ = file_exists(single) || !file_exists(index) ? single : index;
  if (path_ == single) {
    map(single, rename);
  } else {
    for (const std::string& file : files_of_index(index)) map(directory / file, rename);
  }
}

void TensorFiles::map(const fs::path& path, const Rename& rename) {
  files_.push_back(std::make_unique<MappedFile>(path, path_.filename().string()));
  naming(path, [&] {
    for (auto& [tensor, view] : parse_safetensors(files_.back()->bytes())) {
      const std::optional<std::string> renamed = rename(tensor);
      if (renamed && !tensors_.emplace(*renamed, std::move(view)).second)
        user_error("the tensor ", *renamed, " occurs twice");
    }
  });
}

}  // namespace stagegpt
