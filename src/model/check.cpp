#include "model/check.h"

#include <fmt/format.h>

#include <vector>

#include "base/error.h"
#include "base/progress.h"
#include "model/tensor_table.h"

namespace lily {
namespace {

/// Rows of one kind inside a matrix: its scales, its biases or its plain values.
struct Part {
  const char* suffix;
  const std::byte* data;
  DType type;
  std::int64_t count;      // values in a row
  std::int64_t row_bytes;  // from row to row
};

std::vector<Part> parts_of(const Matrix& m) {
  if (!m.quantized()) return {{".weight", m.data, m.plain, m.cols, m.row_bytes}};
  const std::int64_t groups = m.cols / m.group;
  return {{".scales", m.scales, m.scale_type, groups, m.scale_row_bytes},
          {".biases", m.biases, m.scale_type, groups, m.scale_row_bytes}};
}

/// Position of the first value whose exponent is all ones (an infinity or a NaN), or -1.
template <typename Bits>
std::int64_t first_not_finite(const std::byte* row, std::int64_t count, Bits exponent) {
  const auto* values = reinterpret_cast<const Bits*>(row);
  bool bad = false;
  for (std::int64_t i = 0; i < count; ++i) bad |= (values[i] & exponent) == exponent;
  for (std::int64_t i = 0; bad && i < count; ++i)
    if ((values[i] & exponent) == exponent) return i;
  return -1;
}

std::int64_t first_not_finite(const Part& part, std::int64_t row) {
  const std::byte* data = part.data + row * part.row_bytes;
  if (part.type == DType::f32) return first_not_finite<std::uint32_t>(data, part.count, 0x7f800000u);
  return first_not_finite<std::uint16_t>(data, part.count, part.type == DType::bf16 ? 0x7f80 : 0x7c00);
}

template <typename Visit>
void for_each_matrix(const Weights& weights, Visit visit) {
  for (const TableEntry& entry : expand_table(weights.shape()))
    if (entry.row->kind == Kind::matrix || entry.row->kind == Kind::stack)
      visit(module_name(*entry.row, entry.layer), weights.get({entry.row->role, entry.layer}));
}

std::uint64_t bytes_to_read(const Matrix& m) {
  return std::uint64_t(m.quantized() ? 2 * m.count * m.rows * m.scale_row_bytes : m.bytes());
}

}  // namespace

void check_finite(const Matrix& stack, const std::string& module, const std::string& dir) {
  for (std::int64_t i = 0; i < stack.count; ++i)
    for (const Part& part : parts_of(stack.at(i)))
      for (std::int64_t row = 0; row < stack.rows; ++row)
        if (const std::int64_t at = first_not_finite(part, row); at >= 0)
          throw Error(
              ErrorCode::corrupt,
              fmt::format("{}: tensor {}{}: expected finite values, found an infinity or a NaN at {}row {}, "
                          "column {}; fetch or convert the checkpoint again",
                          dir, module, part.suffix, stack.count > 1 ? fmt::format("expert {}, ", i) : "", row, at));
}

void check_finite(const Weights& weights, const std::string& dir, bool progress) {
  std::uint64_t total = 0;
  for_each_matrix(weights, [&](const std::string&, const Matrix& m) { total += bytes_to_read(m); });
  Progress bar("check", total, progress);
  for_each_matrix(weights, [&](const std::string& module, const Matrix& stack) {
    check_finite(stack, module, dir);
    bar.add(bytes_to_read(stack));
  });
  bar.finish();
}

}  // namespace lily
