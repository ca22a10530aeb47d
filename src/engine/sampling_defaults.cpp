#include "engine/sampling_defaults.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json_fault.h"
#include "base/log.h"

namespace lily {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
  json parsed = parse_json_file(read_text_file(path), path.string());
  if (!parsed.is_object()) {
    throw Error(ErrorCode::corrupt,
                fmt::format("{}: expected a JSON object, found {}", path.string(), parsed.type_name()));
  }
  return parsed;
}

/// The fields of one generation_config.json.
class GenerationConfig {
 public:
  explicit GenerationConfig(const std::filesystem::path& path) : file_(path.string()), json_(read_json(path)) {}

  /// A key that is absent or null says nothing. The bounds are those of the sampler.
  template <class T>
  void take(const char* key, double lo, double hi, std::optional<T>& field) const {
    const json* value = find(key);
    if (!value) return;
    constexpr bool kWhole = std::is_integral_v<T>;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= lo && number <= hi) || (kWhole && number != std::trunc(number)))
      fail(key, fmt::format("a {}number from {} to {}", kWhole ? "whole " : "", lo, hi), *value);
    field = T(number);
  }

  bool is_false(const char* key) const {
    const json* value = find(key);
    if (value && !value->is_boolean()) fail(key, "true or false", *value);
    return value && !value->get<bool>();
  }

  void warn_of_idle() const {
    std::string names;
    for (const auto& [key, neutral] : idle_fields()) {
      const json* value = find(key);
      const bool says_nothing =
          !value || *value == json(neutral) || *value == json(false) || (value->is_structured() && value->empty());
      if (!says_nothing) names += (names.empty() ? "" : ", ") + std::string(key);
    }
    if (!names.empty())
      log_warning(fmt::format("{}: not known to this engine and without effect on answers: {}", file_, names));
  }

 private:
  /// What would change answers elsewhere, and the value at which it does not.
  static const std::vector<std::pair<const char*, double>>& idle_fields() {
    static const std::vector<std::pair<const char*, double>> fields = {{"bad_words_ids", 0},
                                                                       {"begin_suppress_tokens", 0},
                                                                       {"diversity_penalty", 0},
                                                                       {"encoder_repetition_penalty", 1},
                                                                       {"epsilon_cutoff", 0},
                                                                       {"eta_cutoff", 0},
                                                                       {"exponential_decay_length_penalty", 0},
                                                                       {"forced_bos_token_id", -1},
                                                                       {"forced_eos_token_id", -1},
                                                                       {"guidance_scale", 1},
                                                                       {"max_length", 0},
                                                                       {"max_new_tokens", 0},
                                                                       {"max_time", 0},
                                                                       {"min_length", 0},
                                                                       {"min_new_tokens", 0},
                                                                       {"no_repeat_ngram_size", 0},
                                                                       {"num_beam_groups", 1},
                                                                       {"num_beams", 1},
                                                                       {"penalty_alpha", 0},
                                                                       {"sequence_bias", 0},
                                                                       {"stop_strings", 0},
                                                                       {"suppress_tokens", 0},
                                                                       {"top_h", 0},
                                                                       {"typical_p", 1},
                                                                       {"watermarking_config", 0}};
    return fields;
  }

  const json* find(const char* key) const {
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  [[noreturn]] void fail(const char* key, const std::string& expected, const json& found) const {
    throw Error(ErrorCode::corrupt,
                fmt::format("{}: {}: expected {}, found {}", file_, key, expected, shortened(found.dump(), 40)));
  }

  std::string file_;
  json json_;
};

}  // namespace

SamplingFields SamplingFields::or_else(const SamplingFields& next) const {
  SamplingFields r = *this;
  const auto fill = [](auto& field, const auto& other) {
    if (!field) field = other;
  };
  fill(r.temperature, next.temperature);
  fill(r.top_p, next.top_p);
  fill(r.min_p, next.min_p);
  fill(r.presence_penalty, next.presence_penalty);
  fill(r.frequency_penalty, next.frequency_penalty);
  fill(r.repetition_penalty, next.repetition_penalty);
  fill(r.top_k, next.top_k);
  fill(r.seed, next.seed);
  return r;
}

SamplerOptions SamplingFields::options() const {
  SamplerOptions o;
  o.temperature = temperature.value_or(o.temperature);
  o.top_k = top_k.value_or(o.top_k);
  o.top_p = top_p.value_or(o.top_p);
  o.min_p = min_p.value_or(o.min_p);
  o.presence_penalty = presence_penalty.value_or(o.presence_penalty);
  o.frequency_penalty = frequency_penalty.value_or(o.frequency_penalty);
  o.repetition_penalty = repetition_penalty.value_or(o.repetition_penalty);
  o.seed = seed;
  return o;
}

SamplingFields read_generation_config(const std::filesystem::path& dir) {
  const std::filesystem::path path = dir / "generation_config.json";
  SamplingFields f;
  if (!is_there(path)) return f;
  const GenerationConfig config(path);
  config.take("temperature", 0, 100, f.temperature);
  config.take("top_p", 0, 1, f.top_p);
  config.take("min_p", 0, 1, f.min_p);
  config.take("top_k", 0, 1e9, f.top_k);
  config.take("presence_penalty", -2, 2, f.presence_penalty);
  config.take("frequency_penalty", -2, 2, f.frequency_penalty);
  config.take("repetition_penalty", 0.01, 100, f.repetition_penalty);
  if (config.is_false("do_sample")) f.temperature = 0;
  config.warn_of_idle();
  return f;
}

}  // namespace lily
