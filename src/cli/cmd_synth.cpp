#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "model/synthetic.h"

namespace lily::cli {

void cmd_synth(const Settings& s) {
  if (s.preset.empty() == s.config_file.empty())
    throw UsageError("give either --preset or --config");
  const std::string config = s.preset.empty() ? read_file("--config", s.config_file) : preset_config(s.preset);
  SynthOptions options;
  if (s.threads > 0) options.threads = s.threads;
  const Interrupt interrupt;
  options.stopped = [&interrupt] { return interrupt.wanted(); };
  SynthResult made;
  try {
    made = write_synthetic(s.out, config, s.preset.empty() ? "--config " + s.config_file : "--preset " + s.preset,
                           options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    log_info("stopped. The shards that are complete are kept: run the same command again to go on");
    die_of_interrupt();
  }
  for (const std::string& note : made.notes) log_info(note);
  put(fmt::format(
      "{}: {} of tensors{}\n", s.out, human_bytes(double(made.bytes)),
      made.reused_bytes ? fmt::format(", {} of them were there already", human_bytes(double(made.reused_bytes))) : ""));
}

}  // namespace lily::cli
