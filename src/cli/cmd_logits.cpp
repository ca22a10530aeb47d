#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/output.h"
#include "cli/tensor_file.h"

namespace lily::cli {
namespace {

enum Entry : std::size_t { kInputIds, kLogits, kHidden };

std::vector<SafetensorsWriter::Entry> entries(std::int64_t n, const ModelShape& shape, bool hidden) {
  std::vector<SafetensorsWriter::Entry> list = {{"input_ids", DType::i32, {n}},
                                                {"logits", DType::f32, {n, shape.vocab}}};
  if (hidden) list.push_back({"hidden_after_layer", DType::f32, {shape.layers, n, shape.hidden}});
  return list;
}

/// Writing over what is being read, which is gone then, is never meant.
void refuse_inputs(const Settings& s, const LoadReport& report) {
  std::vector<std::filesystem::path> inputs = report.files;
  if (s.ids_file != "-") inputs.emplace_back(s.ids_file);
  std::error_code ignored;  // of a file that is not there yet
  for (const auto& input : inputs) {
    if (std::filesystem::equivalent(s.out_file, input, ignored))
      throw Error(ErrorCode::invalid_argument, fmt::format("--out {}: is the file {} that is read; choose another name",
                                                           s.out_file, input.string()));
  }
}

}  // namespace

void cmd_logits(const Settings& s) {
  const std::string from = "--ids " + s.ids_file;
  const auto ids = parse_ids(read_file("--ids", s.ids_file), from);
  if (ids.empty()) throw Error(ErrorCode::invalid_argument, from + ": the list is empty");
  const Ready ready = load(s);
  refuse_inputs(s, ready.model->report);
  const ModelShape& shape = ready.engine->shape();
  const auto n = std::int64_t(ids.size());
  about(from, [&] { ready.engine->check_ids(ids); });
  if (n > ready.engine->max_context()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} ids, and this model's window is {} tokens", from, n, ready.engine->max_context()));
  }

  TensorFile file(s.out_file, entries(n, shape, s.hidden));
  file.write(kInputIds, 0, ids.data(), ids.size() * sizeof(ids[0]));
  Progress progress("logits", ids.size(), true, "tokens");
  std::int64_t pass_begin = 0;  // of the pass that the hook sees
  const LayerHook hook = [&](int layer, const float* x, int rows) {
    const std::uint64_t row = std::uint64_t(layer) * n + pass_begin;
    file.write(kHidden, row * shape.hidden * sizeof(float), x, std::size_t(rows) * shape.hidden * sizeof(float));
  };
  const LogitsSink sink = [&](std::int64_t first, int rows, const float* logits) {
    const std::size_t row_bytes = std::size_t(shape.vocab) * sizeof(float);
    file.write(kLogits, std::uint64_t(first) * row_bytes, logits, rows * row_bytes);
    pass_begin = first + rows;
    progress.add(std::uint64_t(rows));
  };
  ready.engine->logits(ids, s.split, sink, s.hidden ? hook : LayerHook{});
  file.finish();
  progress.finish();
}

}  // namespace lily::cli
