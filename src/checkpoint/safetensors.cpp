#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/error.h"

namespace lily {
namespace {

struct ElementType {
  std::string_view text;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};
constexpr ElementType kElementTypes[] = {
    {"F32", 4, DType::f32},   {"F16", 2, DType::f16},       {"BF16", 2, DType::bf16},     {"I8", 1, DType::i8},
    {"U8", 1, DType::u8},     {"I32", 4, DType::i32},       {"U32", 4, DType::u32},       {"I64", 8, DType::i64},
    {"U64", 8, DType::u64},   {"F64", 8, DType::f64},       {"BOOL", 1, std::nullopt},    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt}, {"F8_E4M3", 1, std::nullopt}, {"F8_E5M2", 1, std::nullopt}, {"F8_E8M0", 1, std::nullopt},
};

const ElementType* element_type(std::string_view text) {
  for (const ElementType& type : kElementTypes)
    if (type.text == text) return &type;
  return nullptr;
}

/// A name for a message: control characters and endless names out of a hostile header do not reach the terminal.
std::string shown(std::string_view name) {
  std::string out;
  for (char c : name.substr(0, 200)) out += (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) ? '?' : c;
  if (name.size() > 200) out += "…";
  return out;
}

/// Receives the header as it is parsed. A document object of it would lose what matters here: duplicate names, depth,
/// and whether a number was written as an integer.
///   { "__metadata__": {str: str}, NAME: {"dtype": str, "shape": [int], "data_offsets": [int, int]} }
class HeaderSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderSax(const std::string& file) : file_(file) {}

  struct Raw {
    TensorInfo info;
    std::vector<std::uint64_t> offsets;
    bool has_dtype = false, has_shape = false, has_offsets = false;
  };
  std::vector<Raw> tensors;
  std::map<std::string, std::string> metadata;

  bool null() override { return bad("null"); }
  bool boolean(bool) override { return bad("a boolean"); }
  bool number_float(number_float_t, const string_t& text) override { return bad("the number " + shown(text)); }
  bool binary(binary_t&) override { return bad("binary data"); }
  bool number_integer(number_integer_t value) override { return bad(fmt::format("the number {}", value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (depth_ != 3) return bad(fmt::format("the number {}", value));
    if (field_ == "shape") {
      if (value > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
        return bad(fmt::format("dimension {}", value));
      if (tensors.back().info.shape.size() >= kMaxDimensions) return bad("more than 8 dimensions");
      tensors.back().info.shape.push_back(std::int64_t(value));
    } else {
      if (tensors.back().offsets.size() >= 2) return bad("more than two data_offsets");
      tensors.back().offsets.push_back(value);
    }
    return true;
  }
  bool string(string_t& value) override {
    if (depth_ == 2 && in_metadata_) {
      metadata[field_] = value;
      return true;
    }
    if (depth_ == 2 && field_ == "dtype") {
      tensors.back().info.dtype_text = value;
      tensors.back().has_dtype = true;
      return true;
    }
    return bad("the string \"" + shown(value) + "\"");
  }
  bool start_object(std::size_t) override {
    if (depth_ == 0) return depth_ = 1, true;
    if (depth_ == 1) return depth_ = 2, true;
    return bad("an object");
  }
  bool end_object() override {
    if (depth_ == 2 && !in_metadata_) {
      const Raw& raw = tensors.back();
      const char* missing = !raw.has_dtype     ? "dtype"
                            : !raw.has_shape   ? "shape"
                            : !raw.has_offsets ? "data_offsets"
                                               : nullptr;
      if (missing) return fail(fmt::format("tensor {}: \"{}\" is missing", shown(raw.info.name), missing));
      if (raw.offsets.size() != 2)
        return fail(
            fmt::format("tensor {}: expected 2 data_offsets, found {}", shown(raw.info.name), raw.offsets.size()));
    }
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ != 2 || in_metadata_ || (field_ != "shape" && field_ != "data_offsets")) return bad("an array");
    (field_ == "shape" ? tensors.back().has_shape : tensors.back().has_offsets) = true;
    depth_ = 3;
    return true;
  }
  bool end_array() override { return depth_ = 2, true; }
  bool key(string_t& key) override {
    if (depth_ == 1) {
      if (!names_.insert(key).second) return fail(fmt::format("tensor {} is declared twice", shown(key)));
      in_metadata_ = key == "__metadata__";
      if (!in_metadata_) {
        tensors.emplace_back();
        tensors.back().info.name = key;
      }
      return true;
    }
    field_ = key;
    if (in_metadata_) return true;
    const Raw& raw = tensors.back();
    if ((key == "dtype" && raw.has_dtype) || (key == "shape" && raw.has_shape) ||
        (key == "data_offsets" && raw.has_offsets))
      return fail(fmt::format("tensor {}: \"{}\" is given twice", shown(raw.info.name), key));
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return fail(fmt::format("tensor {}: unknown field \"{}\" (expected dtype, shape, data_offsets)",
                              shown(raw.info.name), shown(key)));
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    return fail(fmt::format("header is not valid JSON (byte {} of it)", position));
  }

 private:
  static constexpr std::size_t kMaxDimensions = 8;
  /// A value of the wrong kind for the place it stands in.
  bool bad(const std::string& found) {
    if (depth_ == 0) return fail("header: expected a JSON object, found " + found);
    if (depth_ == 1)
      return fail(
          fmt::format("{}: expected an object, found {}", in_metadata_ ? "__metadata__" : tensor_text(), found));
    if (in_metadata_)
      return fail(fmt::format("__metadata__ \"{}\": expected a string, found {}", shown(field_), found));
    const char* expected = field_ == "dtype"   ? "a string"
                           : field_ == "shape" ? "an array of non-negative integers (at most 8)"
                                               : "an array of two non-negative integers";
    return fail(fmt::format("{}: \"{}\": expected {}, found {}", tensor_text(), field_, expected, found));
  }
  std::string tensor_text() const { return "tensor " + (tensors.empty() ? "?" : shown(tensors.back().info.name)); }
  [[noreturn]] bool fail(const std::string& what) const {
    throw Error(ErrorCode::corrupt, fmt::format("{}: {}", file_, what));
  }

  const std::string& file_;
  std::unordered_set<std::string> names_;
  std::string field_;
  bool in_metadata_ = false;
  int depth_ = 0;  // 1 top object, 2 a tensor or the metadata, 3 an array of numbers
};

/// Product of the dimensions times the element size; empty on overflow of 63 bits.
std::optional<std::uint64_t> checked_bytes(const std::vector<std::int64_t>& shape, std::uint64_t element) {
  std::uint64_t total = element;
  for (std::int64_t dim : shape)
    if (__builtin_mul_overflow(total, std::uint64_t(dim), &total) || total >> 63) return std::nullopt;
  return total;
}

/// Checks one tensor against itself; turns its offsets into positions in the file.
TensorInfo check_tensor(HeaderSax::Raw& raw, std::uint64_t data_begin, const std::string& file) {
  TensorInfo& t = raw.info;
  auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::corrupt, fmt::format("{}: tensor {}: {}", file, shown(t.name), what));
  };
  const ElementType* type = element_type(t.dtype_text);
  if (!type) fail(fmt::format("unknown dtype \"{}\"", shown(t.dtype_text)));
  t.dtype = type->dtype;
  const std::uint64_t begin = raw.offsets[0], end = raw.offsets[1];
  if (begin > end) fail(fmt::format("data_offsets [{}, {}] run backwards", begin, end));
  if (end > std::uint64_t(std::numeric_limits<std::int64_t>::max()) - data_begin)
    fail(fmt::format("data_offsets [{}, {}] lie beyond any file", begin, end));
  const auto bytes = checked_bytes(t.shape, type->bytes);
  if (!bytes) fail(fmt::format("shape {} overflows", shape_text(t.shape)));
  if (*bytes != end - begin)
    fail(fmt::format("{} needs {} bytes, data_offsets [{}, {}] hold {}", describe(t), *bytes, begin, end, end - begin));
  t.offset = data_begin + begin;
  t.bytes = *bytes;
  return std::move(t);
}

/// Tensors must tile the data: an overlap or a gap means that one of the offsets lies.
void check_tiling(const std::vector<TensorInfo>& tensors, std::uint64_t data_begin, std::uint64_t file_size,
                  const std::string& file) {
  const std::uint64_t needed = tensors.empty() ? data_begin : tensors.back().offset + tensors.back().bytes;
  std::uint64_t at = data_begin;
  const TensorInfo* before = nullptr;
  for (const TensorInfo& t : tensors) {
    if (t.offset < at)
      throw Error(ErrorCode::corrupt,
                  fmt::format("{}: tensor {} begins at byte {}, inside tensor {} which ends at byte {}", file,
                              shown(t.name), t.offset, shown(before->name), at));
    if (t.offset > at)
      throw Error(ErrorCode::corrupt,
                  fmt::format("{}: tensor {} begins at byte {}, expected {}: {} bytes belong to no tensor", file,
                              shown(t.name), t.offset, at, t.offset - at));
    at = t.offset + t.bytes;
    before = &t;
  }
  if (file_size < needed)
    throw Error(
        ErrorCode::corrupt,
        fmt::format("{}: the file has {} bytes, its header declares {}: {} bytes are missing (tensor {} is cut; an "
                    "interrupted download? fetch the file again)",
                    file, file_size, needed, needed - file_size, shown(tensors.back().name)));
  if (file_size > needed)
    throw Error(ErrorCode::corrupt, fmt::format("{}: the file has {} bytes, its header declares {}: {} bytes too many",
                                                file, file_size, needed, file_size - needed));
}

}  // namespace

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string describe(const TensorInfo& tensor) {
  return tensor.dtype_text + " " + shape_text(tensor.shape);
}

SafetensorsHeader parse_safetensors_header(std::span<const std::byte> head, std::uint64_t file_size,
                                           const std::string& name) {
  if (file_size < 8 || head.size() < 8)
    throw Error(ErrorCode::corrupt,
                fmt::format("{}: the file has {} bytes, a safetensors file begins with 8 bytes of header "
                            "length (an interrupted download?)",
                            name, file_size));
  std::uint64_t length = 0;
  for (int i = 0; i < 8; ++i) length |= std::uint64_t(head[i]) << (8 * i);
  if (length > kMaxSafetensorsHeader)
    throw Error(ErrorCode::corrupt,
                fmt::format("{}: header length {} is beyond the limit of {} bytes: not a safetensors file, "
                            "or a damaged one",
                            name, length, kMaxSafetensorsHeader));
  if (length > file_size - 8)
    throw Error(
        ErrorCode::corrupt,
        fmt::format("{}: the file has {} bytes, its header alone needs {}: {} bytes are missing (an interrupted "
                    "download? fetch the file again)",
                    name, file_size, 8 + length, 8 + length - file_size));
  if (length > head.size() - 8)
    throw Error(ErrorCode::internal,
                fmt::format("{}: {} bytes given of a header of {}", name, head.size(), 8 + length));
  HeaderSax sax(name);
  const char* text = reinterpret_cast<const char*>(head.data()) + 8;
  nlohmann::json::sax_parse(text, text + length, &sax);

  SafetensorsHeader header;
  header.metadata = std::move(sax.metadata);
  header.tensors.reserve(sax.tensors.size());
  for (HeaderSax::Raw& raw : sax.tensors) header.tensors.push_back(check_tensor(raw, 8 + length, name));
  std::stable_sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;  // an empty tensor before its neighbour
  });
  check_tiling(header.tensors, 8 + length, file_size, name);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(std::make_shared<MappedFile>(path)) {
  header_ = parse_safetensors_header({file_->data(), file_->size()}, file_->size(), path.string());
}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  for (const TensorInfo& tensor : header_.tensors)
    if (tensor.name == name) return &tensor;
  return nullptr;
}

const TensorInfo& SafetensorsFile::at(std::string_view name) const {
  if (const TensorInfo* tensor = find(name)) return *tensor;
  throw Error(ErrorCode::not_found, fmt::format("{}: no tensor {}", path().string(), name));
}

}  // namespace lily
