#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/output.h"

namespace lily::cli {
namespace {

/// log Σ exp(l), in double, safe for large logits.
double log_sum_exp(const float* l, int n) {
  const double largest = *std::max_element(l, l + n);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += std::exp(l[i] - largest);
  return largest + std::log(sum);
}

/// Another run's logits, mapped.
class Reference {
 public:
  Reference(const std::string& path, std::span<const std::int32_t> ids, int vocab) : file_(path), vocab_(vocab) {
    const TensorInfo& logits = file_.at("logits");
    const std::vector<std::int64_t> expected = {std::int64_t(ids.size()), vocab};
    if (logits.dtype != DType::f32 || logits.shape != expected) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--reference {}: logits is {}, expected F32 {} for this text", path, describe(logits),
                              shape_text(expected)));
    }
    logits_ = reinterpret_cast<const float*>(file_.data(logits));
    check_ids(path, ids);
  }
  const float* row(std::int64_t i) const {
    const float* row = logits_ + i * vocab_;
    for (int t = 0; t < vocab_; ++t)
      if (!std::isfinite(row[t]))
        throw Error(ErrorCode::invalid_argument,
                    fmt::format("--reference {}: logits: expected finite numbers, found {} at position {}, token {}",
                                file_.path().string(), row[t], i, t));
    return row;
  }

 private:
  void check_ids(const std::string& path, std::span<const std::int32_t> ids) const {
    const TensorInfo& info = file_.at("input_ids");
    if (info.dtype != DType::i32 && info.dtype != DType::i64) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--reference {}: input_ids is {}, expected I32 or I64", path, describe(info)));
    }
    const std::byte* data = file_.data(info);
    const std::size_t count = info.bytes / dtype_bytes(*info.dtype);
    for (std::size_t i = 0; i < std::max(ids.size(), count); ++i) {
      std::int64_t theirs = -1;
      if (i < count)
        theirs = *info.dtype == DType::i32 ? reinterpret_cast<const std::int32_t*>(data)[i]
                                           : reinterpret_cast<const std::int64_t*>(data)[i];
      if (i < ids.size() && theirs == ids[i]) continue;
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--reference {}: its input_ids are not those of the text: position {}", path, i));
    }
  }

  SafetensorsFile file_;
  const float* logits_ = nullptr;
  int vocab_;
};

struct Sums {
  std::int64_t predicted = 0;
  double nll = 0;
  double reference_nll = 0, kl = 0;
  std::int64_t same_top = 0;
};

/// One position: `l` predicts `next`.
void add_position(Sums& sums, const float* l, const float* reference, int vocab, std::int32_t next) {
  const double lse = log_sum_exp(l, vocab);
  ++sums.predicted;
  sums.nll += lse - l[next];
  if (!reference) return;
  const double their_lse = log_sum_exp(reference, vocab);
  sums.reference_nll += their_lse - reference[next];
  for (int t = 0; t < vocab; ++t) {
    const double log_p = reference[t] - their_lse;
    sums.kl += std::exp(log_p) * (log_p - (l[t] - lse));
  }
  sums.same_top += std::max_element(l, l + vocab) - l == std::max_element(reference, reference + vocab) - reference;
}

nlohmann::ordered_json result_json(const Sums& s, std::size_t tokens, int context, bool compared) {
  const double nll = s.nll / double(s.predicted);
  nlohmann::ordered_json j = {{"tokens", tokens},
                              {"predicted", s.predicted},
                              {"context", context},
                              {"nll", nll},
                              {"perplexity", std::exp(nll)}};
  if (compared) {
    const double theirs = s.reference_nll / double(s.predicted);
    j["reference_nll"] = theirs;
    j["reference_perplexity"] = std::exp(theirs);
    j["perplexity_ratio"] = std::exp(nll - theirs);
    j["mean_kl"] = s.kl / double(s.predicted);
    j["top1_agreement"] = double(s.same_top) / double(s.predicted);
  }
  return j;
}

/// A sum that no double holds shows as inf, in JSON as null.
void warn_of_overflow(const nlohmann::ordered_json& result) {
  for (const auto& [key, value] : result.items())
    if (value.is_number_float() && !std::isfinite(value.get<double>()))
      log_warning(fmt::format("{} is beyond the largest number: inf (in JSON null)", key));
}

std::string result_text(const nlohmann::ordered_json& j) {
  std::string text;
  const auto line = [&](const char* key, const char* label, const char* unit) {
    if (!j.contains(key)) return;
    const auto& v = j[key];
    text += fmt::format(
        "{:<28}{}{}\n", label,
        v.is_number_integer() ? fmt::format("{}", v.get<std::int64_t>()) : fmt::format("{:.6f}", v.get<double>()),
        unit);
  };
  line("tokens", "tokens", "");
  line("predicted", "predicted positions", "");
  line("context", "window", " tokens");
  line("nll", "negative log-likelihood", " nats a token");
  line("perplexity", "perplexity", "");
  line("reference_perplexity", "reference's perplexity", "");
  line("perplexity_ratio", "perplexity ratio", "");
  line("mean_kl", "mean KL from reference", " nats");
  line("top1_agreement", "top-1 agreement", "");
  return text;
}

}  // namespace

void cmd_eval(const Settings& s) {
  const std::string text = read_file("--text", s.text_file);
  const Ready ready = load(s);
  const int longest = ready.engine->max_context();
  if (s.context > longest) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--context {}: expected 2 to {}, this model's window", s.context, longest));
  }
  const auto ids = load_tokenizer(ready).encode(text, ControlTokens::as_text);
  if (ids.size() < 2) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--text {}: {} tokens, and at least 2 are needed", s.text_file, ids.size()));
  }
  const int vocab = ready.engine->shape().vocab;
  const auto total = std::int64_t(ids.size());
  std::optional<Reference> reference;
  int context = s.context ? s.context : std::min(longest, 4096);
  if (!s.reference_file.empty()) {
    if (!s.context) context = int(std::min<std::int64_t>(longest, std::max<std::int64_t>(context, total)));
    if (total > context) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("--reference: the text has {} tokens and the window (--context) {}: a "
                              "reference is compared in one window",
                              total, context));
    }
    reference.emplace(s.reference_file, ids, vocab);
  }

  Sums sums;
  Progress progress("eval", ids.size(), !s.json || stderr_is_terminal(), "tokens");
  for (std::int64_t begin = 0; begin < total; begin += context) {
    const auto window = std::span(ids).subspan(begin, std::min<std::int64_t>(context, total - begin));
    ready.engine->logits(window, {}, [&](std::int64_t first, int rows, const float* logits) {
      for (int r = 0; r < rows; ++r) {
        const std::int64_t next = first + r + 1;
        if (next >= std::int64_t(window.size())) break;
        add_position(sums, logits + std::int64_t(r) * vocab, reference ? reference->row(first + r) : nullptr, vocab,
                     window[next]);
      }
      progress.add(std::uint64_t(rows));
    });
  }
  progress.finish();
  const auto result = result_json(sums, ids.size(), context, reference.has_value());
  warn_of_overflow(result);
  put(s.json ? result.dump(1) + "\n" : result_text(result));
}

}  // namespace lily::cli
