#include "server/metrics.h"

#include <fmt/format.h>

#include "base/memory_use.h"

namespace lily::server {

std::string metrics_text(const SchedulerStatus& s, const CacheUse& c, std::int64_t silent_answers) {
  std::string out;
  const auto row = [&](const char* name, const char* type, const char* help, double value) {
    out += fmt::format("# HELP lily_{0} {1}\n# TYPE lily_{0} {2}\nlily_{0} {3}\n", name, help, type, value);
  };
  row("requests_total", "counter", "Requests that got a slot.", double(s.requests));
  row("requests_failed_total", "counter", "Requests that ended in an error.", double(s.failed));
  row("requests_cancelled_total", "counter", "Requests whose client went away.", double(s.cancelled));
  row("requests_running", "gauge", "Requests with a slot.", double(s.running));
  row("requests_reading", "gauge", "... of which the prompt is being read.", double(s.reading));
  row("requests_waiting", "gauge", "Requests in the queue.", double(s.waiting));
  row("prompt_tokens_total", "counter", "Tokens of prompts.", double(s.prompt_tokens));
  row("prompt_tokens_cached_total", "counter", "... that were in the cache.", double(s.cached_tokens));
  row("generated_tokens_total", "counter", "Tokens generated.", double(s.generated_tokens));
  row("answers_silent_total", "counter", "Answers that the model ended after its thinking, without content or a call.", double(silent_answers));
  row("prefill_seconds_total", "counter", "Time spent reading prompts.", s.prefill_seconds);
  row("decode_seconds_total", "counter", "Time spent generating.", s.decode_seconds);
  row("cache_snapshots", "gauge", "Snapshots in the cache.", double(c.snapshots));
  row("cache_snapshot_bytes", "gauge", "Bytes of snapshots without KV.", double(c.snapshot_bytes));
  row("cache_kv_bytes", "gauge", "Bytes of KV blocks that snapshots hold.", double(c.kv_bytes));
  row("cache_evicted_total", "counter", "Snapshots that went to make room.", double(c.evicted));
  row("running_bytes", "gauge", "Bytes of running conversations beyond the cache.", double(s.running_bytes));
  row("resident_bytes", "gauge", "Bytes of the process that are in memory, those of mapped weights too.", double(resident_bytes()));
  return out;
}

}  // namespace lily::server
