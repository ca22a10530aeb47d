#include "engine/sampling_defaults.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json_fault.h"

namespace lily {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
  json parsed = parse_json_file(read_text_file(path), path.string());
  if (!parsed.is_object()) {
    throw Error(ErrorCode::corrupt, fmt::format("{}: expected a JSON object, found {}", path.string(), parsed.type_name()));
  }
  return parsed;
}

/// A key that is absent or null says nothing.
template <class T>
void take(const json& from, const char* key, const std::filesystem::path& path, std::optional<T>& field) {
  const auto at = from.find(key);
  if (at == from.end() || at->is_null()) return;
  if (!at->is_number()) {
    throw Error(ErrorCode::corrupt, fmt::format("{}: {} is {}, not a number", path.string(), key, at->dump()));
  }
  field = at->get<T>();
}

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
  const json config = read_json(path);
  take(config, "temperature", path, f.temperature);
  take(config, "top_p", path, f.top_p);
  take(config, "min_p", path, f.min_p);
  take(config, "top_k", path, f.top_k);
  take(config, "presence_penalty", path, f.presence_penalty);
  take(config, "frequency_penalty", path, f.frequency_penalty);
  take(config, "repetition_penalty", path, f.repetition_penalty);
  if (config.value("do_sample", json()) == json(false)) f.temperature = 0;
  return f;
}

}  // namespace lily
