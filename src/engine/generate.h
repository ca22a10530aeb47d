// One answer: read the prompt, then token after token until something ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/sampler.h"

namespace lily {

enum class Finish {
  end_token,  // the model ended its turn
  length,     // max_tokens, or the window is full
  stopped,    // on_token said so
};

struct GenerateOptions {
  std::int64_t max_tokens = 0;        // end token included; 0: to the end of the window
  std::vector<std::int32_t> end_ids;  // ending the turn
  SyncOptions sync;
  /// Each token but the end token, as it comes; false stops.
  std::function<bool(std::int32_t id)> on_token;
};

struct Generated {
  Finish finish = Finish::length;
  std::vector<std::int32_t> ids;  // as sampled, end token included
  SyncReport prompt;
  double prefill_seconds = 0;
  std::int64_t decode_steps = 0;  // passes that computed one token: the first token's logits came from the prompt
  double decode_seconds = 0;      // from the first token to the last

  double prefill_rate() const { return prefill_seconds > 0 ? double(prompt.computed) / prefill_seconds : 0; }
  double decode_rate() const { return decode_seconds > 0 ? double(decode_steps) / decode_seconds : 0; }
};

/// Errors as Session::sync and Session::next.
Generated generate(Session& session, std::span<const std::int32_t> prompt, Sampler& sampler, const GenerateOptions& options);

}  // namespace lily
