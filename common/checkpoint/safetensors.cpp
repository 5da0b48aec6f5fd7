#include "common/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "common/base/json.h"
#include "common/tensor/half_floats.h"

namespace stagegpt {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::uint64_t kLongestHeader = 100'000'000;  // Hugging Face's own bound
constexpr const char* kMetadata = "__metadata__";

struct ElementType {
  std::string_view name;
  std::uint64_t bytes;
};
constexpr std::array kElementTypes = std::to_array<ElementType>({{"F32", 4},
                                                                 {"F16", 2},
                                                                 {"BF16", 2},
                                                                 {"F64", 8},
                                                                 {"I64", 8},
                                                                 {"I32", 4},
                                                                 {"I16", 2},
                                                                 {"I8", 1},
                                                                 {"U64", 8},
                                                                 {"U32", 4},
                                                                 {"U16", 2},
                                                                 {"U8", 1},
                                                                 {"BOOL", 1}});

// An entry of the header. view.bytes is not set yet; the offsets are.
struct Entry {
  std::string name;
  SafetensorsView view;
  std::uint64_t begin = 0, end = 0;
};

Entry parse_entry(const std::string& name, const nlohmann::json& json) {
  Entry entry{name, {}, 0, 0};
  if (!json.is_object() || json.size() != 3) user_error("expected exactly dtype, shape and data_offsets");
  entry.view.dtype = json.at("dtype").get<std::string>();
  const auto type = std::ranges::find(kElementTypes, entry.view.dtype, &ElementType::name);
  if (type == kElementTypes.end()) user_error("the dtype '", entry.view.dtype.substr(0, 20), "' is unknown");
  std::uint64_t bytes = type->bytes;
  for (const nlohmann::json& extent : json.at("shape").get_ref<const nlohmann::json::array_t&>()) {
    const std::uint64_t n = natural_number(extent, "an extent");
    if (n > INT64_MAX || __builtin_mul_overflow(bytes, n, &bytes)) user_error("the shape is too large");
    entry.view.shape.push_back(static_cast<std::int64_t>(n));
  }
  const auto& offsets = json.at("data_offsets").get_ref<const nlohmann::json::array_t&>();
  if (offsets.size() != 2) user_error("expected two data_offsets, not ", offsets.size());
  entry.begin = natural_number(offsets[0], "a data offset");
  entry.end = natural_number(offsets[1], "a data offset");
  if (entry.end < entry.begin || entry.end - entry.begin != bytes) {
    user_error("the data_offsets are ", entry.begin, " and ", entry.end, ", dtype and shape need ", bytes,
               " bytes");
  }
  return entry;
}

std::vector<Entry> parse_header(std::string_view header) {
  if (!header.starts_with('{')) user_error("the header is not a JSON object");
  const nlohmann::json json = parse_json(header);
  std::vector<Entry> entries;
  for (const auto& item : json.items()) {
    const std::string& name = item.key();
    const nlohmann::json& value = item.value();
    if (name == kMetadata) {
      if (value.is_null()) continue;  // the reference reads it too
      if (!value.is_object() || !std::ranges::all_of(value, [](const auto& v) { return v.is_string(); })) {
        user_error(kMetadata, " is not an object of strings");
      }
      continue;
    }
    try {
      entries.push_back(read_json([&] { return parse_entry(name, value); }));
    } catch (const UserError& error) {
      user_error("tensor '", name.substr(0, 80), "': ", error.what());
    }
  }
  return entries;
}

}  // namespace

std::map<std::string, SafetensorsView> parse_safetensors(std::span<const std::byte> file) {
  std::uint64_t length = 0;
  if (file.size() < kLengthBytes) user_error("not safetensors: the file has only ", file.size(), " bytes");
  std::memcpy(&length, file.data(), kLengthBytes);
  constexpr std::string_view kPointer = "version https://git-lfs";
  if (std::string_view(reinterpret_cast<const char*>(file.data()), file.size()).starts_with(kPointer))
    user_error("this is a pointer of Git LFS, not the file: fetch it with 'git lfs pull'");
  const std::span<const std::byte> rest = file.subspan(kLengthBytes);
  if (length > rest.size() || length > kLongestHeader) {
    user_error("not safetensors: a header of ", length, " bytes in a file of ", file.size());
  }
  std::vector<Entry> entries = parse_header({reinterpret_cast<const char*>(rest.data()), length});
  const std::span<const std::byte> data = rest.subspan(length);

  std::ranges::sort(entries, {}, [](const Entry& entry) { return std::pair(entry.begin, entry.end); });
  std::map<std::string, SafetensorsView> tensors;
  std::uint64_t end = 0;
  for (Entry& entry : entries) {
    if (entry.begin != end) {
      user_error("tensor '", entry.name.substr(0, 80), "' begins at ", entry.begin,
                 ", the one before it ends at ", end);
    }
    end = entry.end;
    if (end > data.size()) continue;  // refused below, with what all of them need
    entry.view.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    tensors.emplace(std::move(entry.name), std::move(entry.view));
  }
  if (end != data.size())
    user_error("the header specifies ", end, " bytes of tensors, the file has ", data.size());
  return tensors;
}

bool is_floating_point(const SafetensorsView& tensor) {
  return tensor.dtype == "F32" || tensor.dtype == "F16" || tensor.dtype == "BF16";
}

void to_floats(const SafetensorsView& tensor, std::int64_t begin, std::span<float> out) {
  check(is_floating_point(tensor), "safetensors: ", tensor.dtype, " as f32");
  const bool wide = tensor.dtype == "F32";
  const std::size_t element = wide ? sizeof(float) : sizeof(std::uint16_t);
  const std::size_t first = static_cast<std::size_t>(begin) * element, bytes = out.size() * element;
  check(first <= tensor.bytes.size() && bytes <= tensor.bytes.size() - first, "safetensors: elements from ",
        begin, " to ", begin + std::ssize(out), " of ", tensor.bytes.size(), " bytes");
  const std::span<const std::byte> in = tensor.bytes.subspan(first, bytes);
  if (!wide) return convert_halves(in, out, tensor.dtype == "F16" ? float_of_f16 : float_of_bf16);
  if (!out.empty()) std::memcpy(out.data(), in.data(), bytes);
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     const std::vector<TensorInfo>& tensors)
    : file_(path) {
  Json json = {{kMetadata, {{"format", "pt"}}}};
  auto& object = json.get_ref<Json::object_t&>();
  for (const TensorInfo& tensor : tensors) {
    std::uint64_t bytes = sizeof(float);
    for (const std::int64_t extent : tensor.shape) bytes *= static_cast<std::uint64_t>(extent);
    object.emplace_back(tensor.name, Json{{"dtype", "F32"},
                                          {"shape", tensor.shape},
                                          {"data_offsets", {missing_bytes_, missing_bytes_ + bytes}}});
    missing_bytes_ += bytes;
  }
  std::string header = json.dump();
  header.resize((header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes,
                ' ');  // aligns the tensors
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::append(std::span<const float> values) {
  check(values.size_bytes() <= missing_bytes_, "safetensors: more elements than in the header");
  missing_bytes_ -= values.size_bytes();
  file_.write(std::as_bytes(values));
}

FileEntry SafetensorsWriter::finish() {
  check(missing_bytes_ == 0, "safetensors: ", missing_bytes_, " bytes are missing");
  return file_.finish();
}

}  // namespace stagegpt
