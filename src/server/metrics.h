// Counters and gauges as Prometheus reads them.
#pragma once

#include <string>

#include "engine/scheduler.h"

namespace lily::server {

/// The text exposition format, version 0.0.4.
std::string metrics_text(const SchedulerStatus& status, const CacheUse& cache, std::int64_t silent_answers);

}  // namespace lily::server
