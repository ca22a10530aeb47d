#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "hub/hub.h"
#include "model/config.h"
#include "model/find.h"

namespace lily::cli {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// Bytes that were there already move the bar and not its rate.
class Bar {
 public:
  void show(const hub::PullProgress& at) {
    if (!bar_) bar_ = std::make_unique<Progress>("pull", at.total);
    const std::uint64_t fresh = at.received - received_;
    received_ = at.received;
    if (at.done <= done_) return;  // again what was useless before
    const std::uint64_t more = at.done - done_;
    done_ = at.done;
    bar_->add(std::min(fresh, more));
    if (more > fresh) bar_->skip(more - fresh);
  }
  void end() { bar_.reset(); }
  void finish() {
    if (bar_) bar_->finish();
  }

 private:
  std::unique_ptr<Progress> bar_;
  std::uint64_t done_ = 0, received_ = 0;
};

}  // namespace

void cmd_pull(const Settings& s) {
  hub::PullOptions options;
  options.endpoint = environment("HF_ENDPOINT");
  options.token = environment("HF_TOKEN");
  options.revision = s.revision;
  options.name = s.name;
  options.models_dir = models_cache_dir();
  if (options.models_dir.empty()) {
    throw Error(ErrorCode::invalid_argument,
                "HOME is not set, so there is no place for models: set HOME or XDG_CACHE_HOME");
  }
  if (options.name == "tiny" || (options.name.empty() && s.repo.ends_with("/tiny")))
    throw Error(ErrorCode::invalid_argument, "the name tiny is the bundled model's: choose another with --name");
  options.check_config = [](const std::string& config) { parse_config(config, "config.json"); };
  Bar bar;
  options.progress = [&bar](const hub::PullProgress& at) { bar.show(at); };
  const Interrupt interrupt;
  options.stopped = [&interrupt] { return interrupt.wanted(); };
  hub::PullReport report;
  try {
    report = hub::pull(s.repo, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    bar.end();
    log_info("stopped. What has come so far is kept: run the same command again to go on");
    die_of_interrupt();
  }
  bar.finish();
  log_info(fmt::format("{} at {}: {} files, {}, verified", s.repo, report.commit.substr(0, 12), report.files,
                       human_bytes(static_cast<double>(report.bytes))));
  put(fmt::format("{}\nNow: lily run {} 'Hello'\n", report.dir.string(), report.name));
}

}  // namespace lily::cli
