// The spellings of a tensor's name: converters put different prefixes before the same module.
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// A name without its prefix: "language_model.model.layers.0.mlp.gate.weight" → "layers.0.mlp.gate.weight",
/// "language_model.lm_head.weight" → "lm_head.weight".
std::string_view strip_prefix(std::string_view name);

/// The group of tensors a text engine has no use for that `name` belongs to, as it is spelt ("vision_tower.*",
/// "model.visual.*", "mtp.*"); empty when it belongs to none.
std::string skipped_group(std::string_view name);

}  // namespace lily
