#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "base/progress.h"
#include "bench/bench.h"
#include "bench/machine.h"
#include "bench/peer.h"
#include "bench/plot.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/output.h"

namespace lily::cli {
namespace {

bench::Options bench_options(const Settings& s) {
  const bool neither = s.prefill_lengths.empty() && s.decode_contexts.empty();
  return {.prefill = neither ? bench::default_lengths() : s.prefill_lengths,
          .decode = neither ? bench::default_lengths() : s.decode_contexts,
          .reps = s.reps,
          .steps = s.steps,
          .ablate = s.ablate,
          .stages = s.stages,
          .peer = s.peer,
          .memory = bench::available_memory()};
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::ceil(seconds));
  if (seconds < 90 * 60) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

// Said before hours of work, not after them.
void check_peer(const std::string& command) {
  if (command.empty()) return;
  try {
    bench::peer_command(command, plan::Phase::prefill, 1, 1);
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}
void check_plot_file(const std::string& path) {
  if (path.empty()) return;
  const auto folder = std::filesystem::absolute(output_path(path)).parent_path();
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored))
    throw Error(ErrorCode::not_found, fmt::format("--plot {}: there is no directory {}", path, folder.string()));
}

/// What the user sees while it goes on: the bar on standard error, and unless JSON is wanted each row when it is known.
class Screen {
 public:
  explicit Screen(bool rows) : rows_(rows) {}

  bench::Listener listener() {
    return {
        .estimate =
            [this](double seconds, int rows) {
              log_info(fmt::format("bench: {} row{}, about {} (a peer's time not counted)", rows, rows == 1 ? "" : "s", duration(seconds)));
              total_ = std::uint64_t(std::ceil(seconds));
              bar_ = std::make_unique<Progress>("bench", total_, true, "s");
            },
        .progress =
            [this](const std::string& what, double done) {
              bar_->relabel(what);
              const auto now = std::uint64_t(done);
              bar_->add(now > told_ ? now - told_ : 0);
              told_ = std::max(told_, now);
            },
        .row = [this](const bench::Row& row) { line(bench::table_row(row)); },
        .skipped = [this](const bench::Skipped& s) { line(bench::table_skipped(s)); }};
  }
  void head(const bench::Report& report) { line(bench::table_head(report)); }
  void foot(const bench::Report& report) {
    if (bar_) {
      if (total_ > told_) bar_->add(total_ - told_);  // the estimate was not met to the second
      bar_->finish();
    }
    line(bench::table_foot(report));
  }

 private:
  void line(const std::string& text) {
    if (rows_) put(text);
  }
  bool rows_;
  std::unique_ptr<Progress> bar_;
  std::uint64_t total_ = 0, told_ = 0;
};

}  // namespace

void cmd_bench(const Settings& s) {
  check_peer(s.peer);
  check_plot_file(s.plot_file);
  const Ready ready = load(s, /*max_context=*/0, /*snapshots=*/0);
  Backend& backend = ready.engine->backend();
  const bench::Options options = bench_options(s);
  // Refuses a name before the head of the table is out.
  const std::vector<ops::Technique> chosen = bench::chosen_techniques(backend, options.ablate);
  if (!options.ablate.empty() && chosen.empty()) log_warning(fmt::format("--ablate: {} has no techniques", backend.name()));
  for (const ops::Technique& t : chosen) {
    if (std::find(options.ablate.begin(), options.ablate.end(), t.name) == options.ablate.end()) continue;  // "all" says it of none
    for (const auto& [phase, lengths] : {std::pair{plan::Phase::prefill, &options.prefill}, {plan::Phase::decode, &options.decode}})
      if (!bench::acts(t, phase) && !lengths->empty())
        log_info(fmt::format("--ablate {}: does nothing in {}, which has no row without it", t.name, bench::phase_name(phase)));
  }
  bench::Report report{
      .machine = bench::machine_name(), .backend = backend.name(), .model = ready.dir.string(), .peer = s.peer};
  Screen screen(!s.json);
  screen.head(report);
  bench::measure(backend, ready.model->weights, options, report, screen.listener());
  screen.foot(report);
  if (s.json) put(bench::report_json(report));
  if (!s.plot_file.empty()) write_text_file(s.plot_file, bench::plot_svg(report));
}

}  // namespace lily::cli
