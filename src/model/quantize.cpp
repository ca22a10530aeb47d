#include "model/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/error.h"
#include "base/half.h"
#include "base/input_file.h"
#include "base/json_fault.h"
#include "base/output_file.h"
#include "base/parallel.h"
#include "base/progress.h"
#include "checkpoint/safetensors.h"
#include "model/load.h"
#include "model/tensor_table.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCopiedFiles[] = {
    "tokenizer.json",     "tokenizer_config.json",   "generation_config.json", "chat_template.jinja",
    "chat_template.json", "special_tokens_map.json", "added_tokens.json",      "vocab.json",
    "merges.txt"};

bool is_matrix(const TableEntry& entry) {
  return entry.row->kind == Kind::matrix || entry.row->kind == Kind::stack;
}
bool is_gate(Role role) {
  return role == Role::router || role == Role::shared_expert_gate;
}

/// What becomes of one tensor of the model.
struct Job {
  TableEntry entry;
  const Matrix* source;
  std::string dir;     // the source's directory, for messages
  std::string module;  // full name without ".weight"
  int bits = 0;        // 0: a vector
  std::vector<SafetensorsWriter::Entry> outputs;
  std::uint64_t bytes() const {
    std::uint64_t total = 0;
    for (const auto& output : outputs) total += SafetensorsWriter::data_bytes(output);
    return total;
  }
};

std::vector<std::int64_t> with_columns(const Job& job, std::int64_t columns) {
  if (job.entry.row->kind == Kind::stack) return {job.source->count, job.source->rows, columns};
  return {job.source->rows, columns};
}

Job make_job(const fs::path& in, const TableEntry& entry, const LoadedModel& model, const QuantizeOptions& options) {
  Job job{entry, &model.weights.get({entry.row->role, entry.layer}), in.string(), {}, 0, {}};
  const Matrix& m = *job.source;
  job.module = (entry.row->role == Role::lm_head ? "language_model." : "language_model.model.") +
               module_name(*entry.row, entry.layer);
  if (!is_matrix(entry)) {
    const bool bare = entry.row->kind == Kind::bare;
    const std::vector<std::int64_t> shape = entry.row->kind == Kind::conv ? std::vector<std::int64_t>{m.rows, m.cols, 1}
                                                                          : std::vector<std::int64_t>{m.cols};
    job.outputs.push_back(
        {job.module + (bare ? "" : ".weight"), entry.row->role == Role::a_log ? DType::f32 : DType::bf16, shape});
    return job;
  }
  if (m.quantized())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: tensor {} is already quantised ({} bits): quantize wants the plain "
                            "bf16, f16 or f32 checkpoint",
                            job.dir, job.module, m.bits));
  if (m.cols % options.group)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--group {}: {}: tensor {} has {} columns, not a multiple of it", options.group, job.dir,
                            job.module, m.cols));
  job.bits = is_gate(entry.row->role) ? 8 : options.bits;
  job.outputs.push_back({job.module + ".weight", DType::u32, with_columns(job, m.cols * job.bits / 32)});
  job.outputs.push_back({job.module + ".scales", DType::bf16, with_columns(job, m.cols / options.group)});
  job.outputs.push_back({job.module + ".biases", DType::bf16, with_columns(job, m.cols / options.group)});
  return job;
}

/// Runs fn(i) for i in [0, count) on some threads.
template <typename F>
void parallel_rows(std::int64_t count, int threads, F fn) {
  std::atomic<std::int64_t> next{0};
  run_on_threads(int(std::min<std::int64_t>(threads, count)), [&] {
    try {
      for (std::int64_t i; (i = next++) < count;) fn(i);
    } catch (...) {
      next = count;  // the others need not go on
      throw;
    }
  });
}

/// Rows of one tensor, as they are quantised.
class TensorQuantizer {
 public:
  /// `release_source`: the source is a view into a mapped file.
  TensorQuantizer(const Job& job, const QuantizeOptions& options, bool release_source)
      : job_(job),
        m_(*job.source),
        options_(options),
        release_source_(release_source),
        groups_(m_.cols / options.group),
        row_codes_(m_.cols * job.bits / 8) {}

  void run(SafetensorsWriter& writer, Progress& progress) {
    const std::int64_t rows = m_.count * m_.rows;
    const std::int64_t block = std::clamp<std::int64_t>((8 << 20) / (m_.cols * 4), 1, rows);
    std::vector<std::uint16_t> scales(std::size_t(rows * groups_)), biases(scales.size());
    std::vector<std::uint8_t> codes(std::size_t(block * row_codes_));
    for (std::int64_t begin = 0; begin < rows; begin += block) {
      if (options_.stopped && options_.stopped()) throw Error(ErrorCode::cancelled, "stopped");
      const std::int64_t n = std::min(block, rows - begin);
      parallel_rows(n, options_.threads, [&](std::int64_t i) {
        const std::int64_t at = (begin + i) * groups_;
        row(begin + i, codes.data() + i * row_codes_, &scales[std::size_t(at)], &biases[std::size_t(at)]);
      });
      writer.write(codes.data(), std::size_t(n * row_codes_));
      progress.add(std::uint64_t(n * m_.row_bytes));
      // Read once and not needed again: its pages need not stay resident. (Between two experts of a raw tensor lie rows
      // of another role; to release those too costs at most a second read.)
      if (release_source_)
        release_pages(row_data(begin), std::uint64_t(row_data(begin + n - 1) + m_.row_bytes - row_data(begin)));
    }
    writer.write(scales.data(), scales.size() * 2);
    writer.write(biases.data(), biases.size() * 2);
  }

 private:
  const std::byte* row_data(std::int64_t index) const {
    return m_.at(index / m_.rows).data + index % m_.rows * m_.row_bytes;
  }
  void row(std::int64_t index, std::uint8_t* codes, std::uint16_t* scales, std::uint16_t* biases) const {
    std::vector<float> values(static_cast<std::size_t>(m_.cols));
    std::vector<std::uint8_t> loose(static_cast<std::size_t>(m_.cols));
    dequantize_row(m_.at(index / m_.rows), index % m_.rows, values.data());
    for (std::int64_t c = 0; c < m_.cols; ++c)
      if (!std::isfinite(values[std::size_t(c)]))
        throw Error(ErrorCode::numerical, fmt::format("{}: tensor {}: row {}, column {} is {}: not a finite number",
                                                      job_.dir, job_.module, index, c, values[std::size_t(c)]));
    for (std::int64_t g = 0; g < groups_; ++g) {
      quantize_group({values.data() + g * options_.group, std::size_t(options_.group)}, job_.bits,
                     loose.data() + g * options_.group, scales + g, biases + g);
      if (!std::isfinite(bf16_to_float(scales[g])) || !std::isfinite(bf16_to_float(biases[g])))
        throw Error(ErrorCode::numerical,
                    fmt::format("{}: tensor {}: row {}, columns {} to {}: the weights are too large for a finite scale "
                                "and bias (bfloat16)",
                                job_.dir, job_.module, index, g * options_.group, (g + 1) * options_.group - 1));
    }
    pack_codes(loose.data(), m_.cols, job_.bits, codes);
  }

  const Job& job_;
  const Matrix& m_;
  const QuantizeOptions& options_;
  bool release_source_;
  std::int64_t groups_, row_codes_;
};

void write_vector(const Job& job, SafetensorsWriter& writer) {
  const Matrix& m = *job.source;
  const std::size_t n = std::size_t(m.rows * m.cols);
  if (job.outputs[0].dtype == DType::f32) {
    writer.write(m.data, n * 4);
    return;
  }
  std::vector<std::uint16_t> rounded(n);
  for (std::size_t i = 0; i < n; ++i) rounded[i] = float_to_bf16(m.vector()[i]);
  writer.write(rounded.data(), n * 2);
}

std::string quantized_config(const std::string& text, const std::string& file, const std::vector<Job>& jobs,
                             const QuantizeOptions& options) {
  auto config = parse_ordered_json_file(text, file);
  nlohmann::ordered_json block = {{"group_size", options.group}, {"bits", options.bits}, {"mode", "affine"}};
  for (const Job& job : jobs)
    if (job.bits && job.bits != options.bits) block[job.module] = {{"group_size", options.group}, {"bits", job.bits}};
  config["quantization"] = block;
  config["quantization_config"] = block;
  return config.dump(2) + "\n";
}

/// Jobs of one shard, in order.
std::vector<std::vector<const Job*>> plan_shards(const std::vector<Job>& jobs, std::uint64_t limit) {
  std::vector<std::vector<const Job*>> shards(1);
  std::uint64_t filled = 0;
  for (const Job& job : jobs) {
    if (filled && filled + job.bytes() > limit) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(&job);
    filled += job.bytes();
  }
  return shards;
}

void write_shards(const fs::path& dir, const std::vector<Job>& jobs, const QuantizeOptions& options,
                  bool release_source, Progress& progress) {
  const auto shards = plan_shards(jobs, options.shard_bytes);
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const std::string name = shards.size() == 1 ? "model.safetensors"
                                                : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    std::vector<SafetensorsWriter::Entry> entries;
    for (const Job* job : shards[s]) entries.insert(entries.end(), job->outputs.begin(), job->outputs.end());
    for (const auto& entry : entries) map.push_back({entry.name, name});
    SafetensorsWriter writer(dir / name, entries, {{"format", "mlx"}});
    for (const Job* job : shards[s]) {
      total += job->bytes();
      if (job->bits)
        TensorQuantizer(*job, options, release_source).run(writer, progress);
      else
        write_vector(*job, writer);
    }
    writer.finish();
  }
  if (shards.size() > 1)
    write_text_file(
        dir / "model.safetensors.index.json",
        nlohmann::ordered_json{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}}.dump(1) + "\n");
}

void check_options(const QuantizeOptions& options) {
  if (!is_quant_bits(options.bits))
    throw Error(ErrorCode::invalid_argument, fmt::format("--bits {}: expected 2, 3, 4, 5, 6 or 8", options.bits));
  if (!is_quant_group(options.group))
    throw Error(ErrorCode::invalid_argument, fmt::format("--group {}: expected 32, 64 or 128", options.group));
}

/// The directory that is to hold the result: written under a name of this run's own, and moved into place at the end.
/// Beside `out` when that is not there yet; inside it when it is, for it may be a mount or somebody's working
/// directory.
class OutputDirectory {
 public:
  explicit OutputDirectory(fs::path given) {
    while (given.has_relative_path() && !given.has_filename()) given = given.parent_path();  // "q4/"
    out_ = follow_links(given);
    std::error_code error;
    exists_ = is_there(out_);
    if (exists_ && !(fs::is_directory(out_) && fs::is_empty(out_)))
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: exists and is not an empty directory; choose another", given.string()));
    if (!exists_ && (given.empty() || out_.filename() == "." || out_.filename() == ".."))
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("OUT '{}': expected the name of a directory to make", given.string()));
    parent_ = exists_ ? out_ : fs::absolute(out_).parent_path();
    fs::create_directories(parent_, error);
    if (error) fail(error);
    work_ = unfinished_name(exists_ ? out_ / "quantize" : out_);
    if (!fs::create_directory(work_, error) && !error) error = std::make_error_code(std::errc::file_exists);
    if (error) fail(error);
  }
  ~OutputDirectory() {
    std::error_code ignored;
    fs::remove_all(work_, ignored);
  }
  OutputDirectory(const OutputDirectory&) = delete;
  OutputDirectory& operator=(const OutputDirectory&) = delete;

  const fs::path& work() const { return work_; }
  std::uintmax_t space() const {
    std::error_code error;
    const fs::space_info found = fs::space(parent_, error);
    return error ? std::numeric_limits<std::uintmax_t>::max() : found.available;
  }
  /// config.json comes last: a directory that has one is whole.
  void finish() {
    if (!exists_) return fs::rename(work_, out_);
    for (const auto& entry : fs::directory_iterator(work_))
      if (entry.path().filename() != "config.json") fs::rename(entry.path(), out_ / entry.path().filename());
    fs::rename(work_ / "config.json", out_ / "config.json");
  }

 private:
  [[noreturn]] void fail(const std::error_code& error) const {
    throw Error(ErrorCode::io, fmt::format("{}: cannot be made: {}", out_.string(), error.message()));
  }

  fs::path out_, parent_, work_;
  bool exists_ = false;
};

/// Those of kCopiedFiles that `in` has; refused before hours of work and not after them.
std::vector<std::string> files_to_copy(const fs::path& in) {
  std::vector<std::string> names;
  for (const char* name : kCopiedFiles) {
    if (!is_there(in / name)) continue;
    if (!fs::is_regular_file(in / name))
      throw Error(ErrorCode::io, fmt::format("{}: expected a regular file", (in / name).string()));
    names.emplace_back(name);
  }
  return names;
}

}  // namespace

void quantize_group(std::span<const float> weights, int bits, std::uint8_t* codes, std::uint16_t* scale_out,
                    std::uint16_t* bias_out) {
  const float bins = float((1 << bits) - 1);
  float low = weights[0], high = weights[0];
  for (float w : weights) {
    low = std::min(low, w);
    high = std::max(high, w);
  }
  float scale = std::max((high - low) / bins, 1e-7f);
  const bool lower_is_farther = std::abs(low) > std::abs(high);
  const float edge = lower_is_farther ? low : high;
  if (!lower_is_farther) scale = -scale;
  const float steps = std::nearbyint(edge / scale);
  float bias = 0;
  if (steps != 0) {
    scale = edge / steps;
    bias = edge;
  }
  for (std::size_t i = 0; i < weights.size(); ++i)
    codes[i] = std::uint8_t(std::clamp(std::nearbyint((weights[i] - bias) / scale), 0.0f, bins));
  *scale_out = float_to_bf16(scale);
  *bias_out = float_to_bf16(bias);
}

void pack_codes(const std::uint8_t* codes, std::int64_t count, int bits, std::uint8_t* out) {
  std::uint32_t pending = 0;
  int filled = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    pending |= std::uint32_t(codes[i]) << filled;
    filled += bits;
    while (filled >= 8) {
      *out++ = std::uint8_t(pending);
      pending >>= 8;
      filled -= 8;
    }
  }
}

QuantizeResult quantize_checkpoint(const fs::path& in, const fs::path& given_out, const QuantizeOptions& options) {
  check_options(options);
  const LoadedModel model = load_model(in);
  const std::vector<std::string> copied = files_to_copy(in);
  std::vector<Job> jobs;
  QuantizeResult result;
  std::uint64_t output_bytes = 0, matrix_bytes = 0;
  std::int64_t matrix_weights = 0, matrix_source = 0;
  for (const TableEntry& entry : expand_table(model.shape)) {
    jobs.push_back(make_job(in, entry, model, options));
    const Job& job = jobs.back();
    output_bytes += job.bytes();
    if (!job.bits) continue;
    matrix_bytes += job.bytes();
    matrix_weights += job.source->count * job.source->rows * job.source->cols;
    matrix_source += job.source->bytes();
  }
  try {
    OutputDirectory out(given_out);
    if (out.space() < output_bytes)
      throw Error(ErrorCode::io, fmt::format("{}: {} bytes are to be written, {} are free on the disk",
                                             given_out.string(), output_bytes, out.space()));
    Progress progress("quantize", std::uint64_t(matrix_source), options.progress);
    write_shards(out.work(), jobs, options, model.report.realigned_tensors == 0, progress);
    progress.finish();
    const fs::path config = in / "config.json";
    write_text_file(out.work() / "config.json",
                    quantized_config(read_text_file(config), config.string(), jobs, options));
    for (const std::string& name : copied) fs::copy_file(in / name, out.work() / name);
    out.finish();
  } catch (const fs::filesystem_error& failure) {
    throw Error(ErrorCode::io, failure.what());
  }
  result.notes.insert(result.notes.end(), model.report.lines.begin(), model.report.lines.end());
  result.notes.insert(result.notes.end(), model.report.warnings.begin(), model.report.warnings.end());
  result.notes.push_back(copied.empty() ? "no tokenizer files beside the weights: none copied"
                                        : fmt::format("copied: {}", fmt::join(copied, ", ")));
  result.input_bytes = model.report.file_bytes;
  result.output_bytes = std::int64_t(output_bytes);
  result.bits_per_weight = 8.0 * double(matrix_bytes) / double(matrix_weights);
  return result;
}

}  // namespace lily
