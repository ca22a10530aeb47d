// config.json → ModelShape. Strict: a key that is missing is an error that names it, never a default; a value this
// engine does not compute is refused by name.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/shape.h"

namespace lily {

/// How one module is said to be stored. bits 0 = not quantised.
struct QuantSetting {
  int bits = 0;
  int group = 0;
  bool operator==(const QuantSetting&) const = default;
};

/// The `quantization` block: a setting for all and exceptions by module. The shapes of the tensors decide what is
/// stored; this is cross-checked with them.
struct Quantization {
  bool present = false;
  QuantSetting standard;
  /// By module path without prefix ("layers.0.mlp.gate", "lm_head"), however the file spells it.
  std::map<std::string, QuantSetting> overrides;
  QuantSetting of(const std::string& module) const {
    if (!present) return {};
    const auto at = overrides.find(module);
    return at == overrides.end() ? standard : at->second;
  }
};

struct ModelConfig {
  std::string file;  // what messages call it
  ModelShape shape;
  Quantization quantization;
  std::vector<std::string> warnings;
};

/// `file` is what messages call it.
ModelConfig parse_config(std::string_view json_text, const std::string& file);

inline constexpr int kQuantBits[] = {2, 3, 4, 5, 6, 8};
inline constexpr int kQuantGroups[] = {32, 64, 128};
bool is_quant_bits(std::int64_t bits);
bool is_quant_group(std::int64_t group);

}  // namespace lily
