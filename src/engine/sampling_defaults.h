// Which sampling values hold: what the request says, else the command line, else the model's generation_config.json,
// else the neutral value. "Says" means present: an explicit 0 counts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "engine/sampler.h"

namespace lily {

/// One source's say. Absent fields are left to the next source.
struct SamplingFields {
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int> top_k;
  std::optional<std::uint64_t> seed;

  /// These fields, and where absent those of `next`.
  SamplingFields or_else(const SamplingFields& next) const;
  /// Absent ones neutral.
  SamplerOptions options() const;
};

/// What `dir`/generation_config.json recommends; nothing when there is no such file. do_sample false means temperature
/// 0. Error(corrupt) that names file, key and value for one of another type or beyond the sampler's bounds. Warns of
/// fields that would change answers and have no effect here.
SamplingFields read_generation_config(const std::filesystem::path& dir);

}  // namespace lily
