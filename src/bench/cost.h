// From plan/cost to the figures of a row.
#pragma once

#include "backend/backend.h"
#include "bench/report.h"

namespace lily::bench {

/// One token of a prompt of `n`, read from an empty state in passes as a session makes them, logits of the last token
/// alone.
Work prefill_work(const Backend& backend, const Weights& weights, int n);
/// The mean of `steps` decode steps after `context` tokens.
Work decode_work(const Backend& backend, const Weights& weights, int context, int steps);

/// Bytes of a conversation of `tokens`: KV in whole blocks, and the recurrent part.
std::int64_t state_bytes(const StateLayout& layout, std::int64_t tokens);

/// Seconds that a token of this work takes at least; 0 where nothing was measured.
double limit_seconds(const Work& work, const MachineLimits& limits);

}  // namespace lily::bench
