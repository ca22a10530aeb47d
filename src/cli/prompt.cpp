#include "cli/prompt.h"

#include <nlohmann/json.hpp>

#include "base/log.h"

namespace lily::cli {

Prompter::Prompter(const std::filesystem::path& dir, const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const TemplateChoice choice = choose_template(dir);
  if (!choice.warning.empty()) log_warning(choice.warning);
  style_ = choice.style;
}

Prompt Prompter::chat(const nlohmann::ordered_json& body) const {
  const RenderedPrompt rendered = render_chat(parse_chat(body), style_);
  Prompt prompt;
  std::vector<PromptBoundary> boundaries;
  prompt.ids = tokenizer_.encode(rendered.segments, &boundaries);
  prompt.thinking = rendered.thinking;
  for (const PromptBoundary& b : boundaries) {
    if (b.kind == Boundary::generation_prompt) prompt.snapshot_at = {std::int64_t(b.n_ids)};
  }
  return prompt;
}

Prompt Prompter::raw(const std::string& text) const {
  Prompt prompt;
  prompt.ids = tokenizer_.encode(text, ControlTokens::parse);
  return prompt;
}

SamplingFields sampling_fields(const Settings& s, const std::filesystem::path& model_dir) {
  const SamplingFields flags{.temperature = s.temperature,
                             .top_p = s.top_p,
                             .min_p = s.min_p,
                             .presence_penalty = s.presence_penalty,
                             .frequency_penalty = s.frequency_penalty,
                             .repetition_penalty = s.repetition_penalty,
                             .top_k = s.top_k,
                             .seed = s.seed};
  return flags.or_else(read_generation_config(model_dir));
}

SamplerOptions sampler_options(const Settings& s, const std::filesystem::path& model_dir) {
  return sampling_fields(s, model_dir).options();
}

}  // namespace lily::cli
