#include "model/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "base/half.h"
#include "model/check.h"
#include "model/names.h"
#include "model/tensor_table.h"

namespace lily {
namespace {

using Tensor = Checkpoint::Tensor;
using Shape = std::vector<std::int64_t>;

bool is_plain(std::optional<DType> type) {
  return type == DType::bf16 || type == DType::f16 || type == DType::f32;
}

constexpr const char* kPlainTypes = "BF16, F16 or F32";

/// Matrices that steer all tokens, and whose scales and biases are 1 to 2 MB in the largest model: read at once, as the
/// vectors are. Of the others only `lily inspect --check` reads all.
bool is_small(Role role) {
  return role == Role::in_proj_a || role == Role::in_proj_b || role == Role::router || role == Role::shared_expert_gate;
}

/// Binds the tensors of a checkpoint to the rows of the table.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelConfig& config, const LoadOptions& options)
      : checkpoint_(checkpoint), config_(config), options_(options), weights_(config.shape) {}

  LoadedModel run() {
    for (const auto& file : checkpoint_.files()) weights_.keep(file->file());
    sort_names();
    decide_layout();
    for (const TableEntry& entry : expand_table(config_.shape)) bind(entry);
    if (config_.shape.tied_embeddings) tie_head();
    refuse_leftovers();
    check_norms();
    report();
    return {config_.shape, config_.quantization, std::move(weights_), std::move(report_)};
  }

 private:
  [[noreturn]] void fail(ErrorCode code, const Tensor& tensor, const std::string& what) const {
    throw Error(code, fmt::format("{}: tensor {}: {}", tensor.file->path().string(), tensor.info->name, what));
  }

  /// Splits off the groups that a text engine skips and keys the rest by the name without prefix.
  void sort_names() {
    for (const Tensor& tensor : checkpoint_.tensors()) {
      const std::string group = skipped_group(tensor.info->name);
      if (!group.empty()) {
        auto& [count, bytes] = skipped_[group];
        ++count;
        bytes += std::int64_t(tensor.info->bytes);
        continue;
      }
      const auto [at, fresh] = by_name_.emplace(strip_prefix(tensor.info->name), tensor);
      if (!fresh)
        throw Error(ErrorCode::corrupt, fmt::format("{}: {} (in {}) and {} (in {}) are the same tensor under two names",
                                                    checkpoint_.dir().string(), at->second.info->name,
                                                    at->second.file_name(), tensor.info->name, tensor.file_name()));
    }
  }

  /// Raw or converted is decided by the convolution's shape alone: names, and mtp tensors above all, say nothing.
  void decide_layout() {
    const Tensor* decided = nullptr;
    const TensorRow& row = tensor_row(Role::conv1d);
    for (int layer = 0; layer < config_.shape.layers; ++layer) {
      if (!in_scope(row.scope, config_.shape, layer)) continue;
      const Tensor* tensor = find(tensor_name(row, layer));
      if (!tensor) continue;  // bind() says what is missing
      const Shape& shape = tensor->info->shape;
      const std::int64_t channels = config_.shape.conv_channels(), kernel = config_.shape.conv_kernel;
      const bool raw = shape == Shape{channels, 1, kernel};
      if (!raw && shape != Shape{channels, kernel, 1})
        fail(ErrorCode::corrupt, *tensor,
             fmt::format("expected shape [{0}, {1}, 1] (converted) or [{0}, 1, {1}] (raw), found {2}", channels, kernel,
                         describe(*tensor->info)));
      if (decided && raw != report_.raw)
        fail(ErrorCode::corrupt, *tensor,
             fmt::format("shape {}, while {} in {} is {}: half raw, half converted", shape_text(shape),
                         decided->info->name, decided->file_name(), shape_text(decided->info->shape)));
      report_.raw = raw;
      decided = tensor;
    }
  }

  const Tensor* find(const std::string& name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : &at->second;
  }

  const Tensor& need(const std::string& name, const std::string& expected) {
    if (const Tensor* tensor = find(name)) return use(name, *tensor);
    const std::string hint = checkpoint_.absence_hint(name);
    const std::size_t files = checkpoint_.files().size();
    throw Error(ErrorCode::not_found,
                fmt::format("{}: tensor {} is missing: expected {}, found none under any known prefix in {} file{}{}",
                            checkpoint_.dir().string(), name, expected, files, files == 1 ? "" : "s",
                            hint.empty() ? "" : "; " + hint));
  }

  const Tensor& use(const std::string& name, const Tensor& tensor) {
    used_.insert(name);
    if (options_.mlock) tensor.file->file()->lock(tensor.info->offset, tensor.info->bytes);
    return tensor;
  }

  void bind(const TableEntry& entry) {
    const TensorRow& row = *entry.row;
    const Dims dims = row.dims(config_.shape);
    const TensorId id{row.role, entry.layer};
    const std::string module = module_name(row, entry.layer);
    if (row.kind == Kind::stack && bind_raw_experts(entry, dims)) return;
    if (row.kind == Kind::matrix || row.kind == Kind::stack) {
      const Matrix m = bind_matrix(module, dims, row.kind == Kind::stack);
      if (is_small(row.role) && m.quantized()) check_finite(m, module, checkpoint_.dir().string());
      weights_.set(id, m);
    } else {
      weights_.set(id, bind_vector(tensor_name(row, entry.layer), row.kind, dims));
    }
  }

  // ---- small vectors: widened and owned ----

  Matrix bind_vector(const std::string& name, Kind kind, const Dims& dims) {
    const Shape expected = kind == Kind::conv
                               ? (report_.raw ? Shape{dims.rows, 1, dims.cols} : Shape{dims.rows, dims.cols, 1})
                               : Shape{dims.cols};
    const std::string expected_text = fmt::format("{} {}", kPlainTypes, shape_text(expected));
    const Tensor& tensor = need(name, expected_text);
    if (!is_plain(tensor.info->dtype) || tensor.info->shape != expected)
      fail(ErrorCode::corrupt, tensor, fmt::format("expected {}, found {}", expected_text, describe(*tensor.info)));
    Matrix stored;
    stored.rows = 1;
    stored.cols = dims.rows * dims.cols;
    stored.plain = *tensor.info->dtype;
    stored.data = tensor.data();
    auto wide = std::make_shared<std::vector<float>>(std::size_t(stored.cols));
    dequantize_row(stored, 0, wide->data());
    for (std::size_t i = 0; i < wide->size(); ++i)
      if (!std::isfinite((*wide)[i]))
        fail(ErrorCode::corrupt, tensor, fmt::format("expected finite values, found {} at element {}", (*wide)[i], i));
    if (kind == Kind::norm && report_.raw)
      for (float& value : *wide) value += 1.0f;
    Matrix m;
    m.rows = dims.rows;
    m.cols = dims.cols;
    m.bits = 32;
    m.data = reinterpret_cast<const std::byte*>(wide->data());
    m.row_bytes = 4 * dims.cols;
    m.stack_bytes = m.rows * m.row_bytes;
    report_.copied_bytes += m.stack_bytes;
    weights_.keep(std::move(wide));
    return m;
  }

  // ---- matrices: views ----

  /// Where kernels find the bytes: in the mapping, or in a copy when the file puts them at an odd place.
  const std::byte* aligned(const Tensor& tensor) {
    if (tensor.info->offset % 4 == 0) return tensor.data();
    auto copy = std::make_shared<std::vector<std::uint64_t>>((tensor.info->bytes + 7) / 8);
    std::memcpy(copy->data(), tensor.data(), tensor.info->bytes);
    const auto* data = reinterpret_cast<const std::byte*>(copy->data());
    report_.copied_bytes += std::int64_t(tensor.info->bytes);
    ++report_.realigned_tensors;
    weights_.keep(std::move(copy));
    return data;
  }

  Matrix bind_matrix(const std::string& module, const Dims& dims, bool stacked) {
    const Shape whole = stacked ? Shape{dims.count, dims.rows, dims.cols} : Shape{dims.rows, dims.cols};
    const Tensor& tensor =
        need(module + ".weight", shape_text(whole) + " as U32 codes with scales and biases, or as " + kPlainTypes);
    if (is_plain(tensor.info->dtype)) return plain_matrix(tensor, module, dims, whole);
    if (tensor.info->dtype != DType::u32)
      fail(
          ErrorCode::corrupt, tensor,
          fmt::format("expected U32 codes or {} {}, found {}", kPlainTypes, shape_text(whole), describe(*tensor.info)));
    return quantized_matrix(tensor, module, dims, whole);
  }

  Matrix plain_matrix(const Tensor& tensor, const std::string& module, const Dims& dims, const Shape& whole) {
    if (tensor.info->shape != whole)
      fail(ErrorCode::corrupt, tensor,
           fmt::format("expected shape {}, found {}", shape_text(whole), describe(*tensor.info)));
    compare_with_config(tensor, module, {});
    Matrix m;
    m.count = dims.count;
    m.rows = dims.rows;
    m.cols = dims.cols;
    m.plain = *tensor.info->dtype;
    m.bits = int(8 * dtype_bytes(m.plain));
    m.data = aligned(tensor);
    m.row_bytes = dims.cols * std::int64_t(dtype_bytes(m.plain));
    m.stack_bytes = dims.rows * m.row_bytes;
    return m;
  }

  Matrix quantized_matrix(const Tensor& codes, const std::string& module, const Dims& dims, const Shape& whole) {
    const Tensor& scales = need(module + ".scales", "the scales of " + codes.info->name);
    const Tensor& biases = need(module + ".biases", "the biases of " + codes.info->name);
    const QuantSetting stored = derive_setting(codes, scales, dims, whole);
    Shape expected = whole;
    expected.back() = dims.cols / stored.group;
    for (const Tensor* t : {&scales, &biases}) {
      if (!is_plain(t->info->dtype) || t->info->shape != expected)
        fail(ErrorCode::corrupt, *t,
             fmt::format("expected {} {} ({} bits, groups of {}, as {} has them), found {}", kPlainTypes,
                         shape_text(expected), stored.bits, stored.group, codes.info->name, describe(*t->info)));
    }
    if (scales.info->dtype != biases.info->dtype)
      fail(ErrorCode::corrupt, biases,
           fmt::format("expected {} as the scales have, found {}", scales.info->dtype_text, biases.info->dtype_text));
    compare_with_config(codes, module, stored);
    Matrix m;
    m.count = dims.count;
    m.rows = dims.rows;
    m.cols = dims.cols;
    m.bits = stored.bits;
    m.group = stored.group;
    m.scale_type = *scales.info->dtype;
    m.data = aligned(codes);
    m.scales = aligned(scales);
    m.biases = aligned(biases);
    m.row_bytes = dims.cols * stored.bits / 8;
    m.scale_row_bytes = dims.cols / stored.group * std::int64_t(dtype_bytes(m.scale_type));
    m.stack_bytes = dims.rows * m.row_bytes;
    m.scale_stack_bytes = dims.rows * m.scale_row_bytes;
    return m;
  }

  /// bits = packed words * 32 / columns and group = columns / scales, which must come out whole and allowed.
  QuantSetting derive_setting(const Tensor& codes, const Tensor& scales, const Dims& dims, const Shape& whole) const {
    const Shape& packed = codes.info->shape;
    bool rows_match = packed.size() == whole.size();
    for (std::size_t i = 0; rows_match && i + 1 < whole.size(); ++i) rows_match = packed[i] == whole[i];
    // More words than columns are no width at all, and the product below stays small.
    const std::int64_t words = rows_match && packed.back() <= dims.cols ? packed.back() : 0;
    const std::int64_t bits = words * 32 / dims.cols;
    if (!rows_match || words * 32 % dims.cols || !is_quant_bits(bits)) {
      Shape four = whole;
      four.back() = dims.cols * 4 / 32;
      fail(ErrorCode::corrupt, codes,
           fmt::format("expected codes of {} at 2, 3, 4, 5, 6 or 8 bits (U32 {} at 4 bits), found {}",
                       shape_text(whole), shape_text(four), describe(*codes.info)));
    }
    const std::int64_t groups = scales.info->shape.empty() ? 0 : scales.info->shape.back();
    if (groups <= 0 || dims.cols % groups || !is_quant_group(dims.cols / groups))
      fail(ErrorCode::corrupt, scales,
           fmt::format("expected one scale for 32, 64 or 128 of the {} columns of {}, found {}", dims.cols,
                       codes.info->name, describe(*scales.info)));
    return {int(bits), int(dims.cols / groups)};
  }

  /// The shapes leave no doubt about bits and group, so they are believed; that config.json says otherwise is reported.
  void compare_with_config(const Tensor& tensor, const std::string& module, QuantSetting stored) {
    overrides_seen_.insert(module);
    const QuantSetting said = config_.quantization.of(module);
    if (said == stored || (!config_.quantization.present && stored.bits == 0)) return;
    // A converter leaves modules that it cannot group (or was told to leave) in 16 bits without writing that down.
    if (stored.bits == 0 && !config_.quantization.overrides.count(module)) return;
    const auto text = [](QuantSetting s) {
      return s.bits ? fmt::format("{} bits, groups of {}", s.bits, s.group) : "not quantised";
    };
    conflicts_.push_back(fmt::format("{}: tensor {}: its shape says {}, config.json says {}; the shape is believed",
                                     tensor.file_name(), tensor.info->name, text(stored), text(said)));
  }

  // ---- the raw layout of the experts ----

  bool bind_raw_experts(const TableEntry& entry, const Dims& dims) {
    const bool down = entry.row->role == Role::expert_down_proj;
    const std::string name = fmt::format("layers.{}.{}", entry.layer, down ? kRawDown : kRawGateUp);
    // A raw model that has neither form hears of the raw one.
    if (!find(name) && (!report_.raw || find(module_name(*entry.row, entry.layer) + ".weight"))) return false;
    const std::int64_t rows = down ? dims.rows : 2 * dims.rows;  // of one expert in the tensor
    const Shape expected{dims.count, rows, dims.cols};
    const Tensor& tensor = need(name, shape_text(expected));
    if (!is_plain(tensor.info->dtype))
      fail(ErrorCode::corrupt, tensor,
           fmt::format("expected {} {}, found {}", kPlainTypes, shape_text(expected), describe(*tensor.info)));
    const auto shared = raw_views_.find(name);
    Matrix m = shared != raw_views_.end() ? shared->second
                                          : plain_matrix(tensor, name, Dims{dims.count, rows, dims.cols}, expected);
    raw_views_[name] = m;
    m.rows = dims.rows;  // stack_bytes stays: the step from expert to expert
    if (entry.row->role == Role::expert_up_proj) m.data += dims.rows * m.row_bytes;
    weights_.set({entry.row->role, entry.layer}, m);
    return true;
  }

  // ---- the whole ----

  void tie_head() {
    weights_.set({Role::lm_head}, weights_.get({Role::embed_tokens}));
    bool present = false;
    for (const char* part : {"lm_head.weight", "lm_head.scales", "lm_head.biases"})
      if (find(part)) present = true, used_.insert(part);
    if (present)
      report_.warnings.push_back(
          "lm_head is in the checkpoint and not used: config.json says tie_word_embeddings true");
  }

  void refuse_leftovers() const {
    for (const auto& [name, tensor] : by_name_)
      if (!used_.count(name))
        fail(ErrorCode::corrupt, tensor,
             fmt::format("expected no such tensor in this model, found {}; known and skipped are only "
                         "vision_tower.*, visual.* and mtp.*",
                         describe(*tensor.info)));
  }

  /// The fault this finds is silent otherwise: a converted checkpoint shifted once more (or stored shifted twice) still
  /// talks, but badly. Trained input norms have a mean of about 1.
  void check_norms() {
    double sum = 0;
    std::int64_t n = 0;
    for (int layer = 0; layer < config_.shape.layers; ++layer) {
      const Matrix& m = weights_.get({Role::input_norm, layer});
      for (std::int64_t i = 0; i < m.cols; ++i) sum += m.vector()[i];
      n += m.cols;
    }
    const double mean = sum / double(n);
    if (mean > 1.6 && mean < 2.4)
      throw Error(
          ErrorCode::corrupt,
          fmt::format("{}: input_layernorm weights have the mean {:.3f}, expected about 1: one was added twice (the "
                      "checkpoint is {} by conv1d.weight); convert it again from the original",
                      checkpoint_.dir().string(), mean, report_.raw ? "raw" : "converted"));
    if (std::abs(mean) < 0.3)
      report_.warnings.push_back(
          fmt::format("input_layernorm weights have the mean {:.3f}, expected about 1: was the checkpoint "
                      "converted without adding one?",
                      mean));
  }

  void report() {
    LoadReport& r = report_;
    r.files.push_back(checkpoint_.config_path());
    for (const auto& file : checkpoint_.files()) r.files.push_back(file->path());
    r.file_bytes = std::int64_t(checkpoint_.file_bytes());
    r.weight_bytes = weights_.bytes();
    const std::size_t files = checkpoint_.files().size();
    r.lines.push_back(fmt::format("{}: {} file{}, {} bytes, {} layout", checkpoint_.dir().string(), files,
                                  files == 1 ? "" : "s", r.file_bytes, r.raw ? "raw Hugging Face" : "MLX"));
    std::string groups;
    for (const auto& [group, count_bytes] : skipped_) {
      groups += fmt::format("{}{} ({} tensors, {} bytes)", groups.empty() ? "" : ", ", group, count_bytes.first,
                            count_bytes.second);
      r.skipped_bytes += count_bytes.second;
    }
    if (!groups.empty()) r.lines.push_back("skipped, not needed for text: " + groups);
    if (r.realigned_tensors)
      r.lines.push_back(fmt::format("{} tensors do not begin at a multiple of 4 bytes in their file and were copied",
                                    r.realigned_tensors));
    auto& warnings = r.warnings;
    warnings.insert(warnings.end(), config_.warnings.begin(), config_.warnings.end());
    warnings.insert(warnings.end(), checkpoint_.warnings().begin(), checkpoint_.warnings().end());
    constexpr std::size_t kShown = 5;
    for (std::size_t i = 0; i < std::min(kShown, conflicts_.size()); ++i) warnings.push_back(conflicts_[i]);
    if (conflicts_.size() > kShown)
      warnings.push_back(fmt::format("… and {} more tensors that config.json gets wrong", conflicts_.size() - kShown));
    for (const auto& [module, setting] : config_.quantization.overrides)
      if (!overrides_seen_.count(module) && skipped_group(module + ".").empty())
        warnings.push_back(fmt::format("config.json: the quantisation override of {} matches no tensor", module));
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const LoadOptions& options_;
  Weights weights_;
  LoadReport report_;
  std::map<std::string, Tensor> by_name_;                                 // by name without prefix
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> skipped_;  // group → tensors, bytes
  std::set<std::string> used_, overrides_seen_;
  std::map<std::string, Matrix> raw_views_;  // gate_up_proj is bound twice and copied at most once
  std::vector<std::string> conflicts_;
};

}  // namespace

LoadedModel load_model(const std::filesystem::path& dir, const LoadOptions& options) {
  const Checkpoint checkpoint(dir);
  const ModelConfig config = parse_config(checkpoint.config_text(), checkpoint.config_path().string());
  return Binder(checkpoint, config, options).run();
}

}  // namespace lily
