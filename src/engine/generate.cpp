#include "engine/generate.h"

#include <algorithm>

#include "base/clock.h"

namespace lily {

Generated generate(Session& session, std::span<const std::int32_t> prompt, Sampler& sampler,
                   const GenerateOptions& options) {
  Generated g;
  const auto begin = Clock::now();
  g.prompt = session.sync(prompt, options.sync);
  g.prefill_seconds = seconds_since(begin);
  sampler.see_prompt(prompt);

  std::int64_t left = session.room();
  if (options.max_tokens > 0) left = std::min(left, options.max_tokens);
  Clock::time_point first;
  for (; left > 0; --left) {
    const std::int32_t id = session.next(sampler);
    if (g.ids.empty()) {
      first = Clock::now();
    } else {
      ++g.decode_steps;
      g.decode_seconds = seconds_since(first);
    }
    g.ids.push_back(id);
    if (std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end()) {
      g.finish = Finish::end_token;
      break;
    }
    if (options.on_token && !options.on_token(id)) {
      g.finish = Finish::stopped;
      break;
    }
  }
  return g;
}

}  // namespace lily
