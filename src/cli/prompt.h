// From messages or raw text to the ids that a session reads.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/options.h"
#include "engine/sampling_defaults.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily::cli {

struct Prompt {
  std::vector<std::int32_t> ids;
  bool thinking = false;                  // it ends inside an open think block
  std::vector<std::int64_t> snapshot_at;  // where the next turn's prompt will part from this one at the earliest
};

/// Renders messages with the model's template.
class Prompter {
 public:
  /// Warns when the checkpoint's template is none of those known.
  Prompter(const std::filesystem::path& dir, const Tokenizer& tokenizer);
  /// `body` as `lily template` takes it. Errors name the message and field.
  Prompt chat(const nlohmann::ordered_json& body) const;
  /// The text as it is, control tokens in it included.
  Prompt raw(const std::string& text) const;

 private:
  const Tokenizer& tokenizer_;
  TemplateStyle style_;
};

/// What the flags say about sampling, else the model's generation_config.json; the rest is left open.
SamplingFields sampling_fields(const Settings& settings, const std::filesystem::path& model_dir);
/// What the flags say about sampling, else the model's generation_config.json, else neutral.
SamplerOptions sampler_options(const Settings& settings, const std::filesystem::path& model_dir);

}  // namespace lily::cli
