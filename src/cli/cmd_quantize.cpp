#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "model/find.h"
#include "model/quantize.h"

namespace lily::cli {

void cmd_quantize(const Settings& s) {
  QuantizeOptions options{.bits = s.bits, .group = s.group};
  if (s.threads > 0) options.threads = s.threads;
  const Interrupt interrupt;
  options.stopped = [&interrupt] { return interrupt.wanted(); };
  QuantizeResult made;
  try {
    made = quantize_checkpoint(find_model(s.in), s.out, options);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::cancelled) throw;
    log_info("stopped. Nothing of the result was kept");
    die_of_interrupt();
  }
  for (const std::string& note : made.notes) log_info(note);
  put(fmt::format("{}: {} from {}, {:.3f} bits a quantised weight\n", s.out, human_bytes(double(made.output_bytes)),
                  human_bytes(double(made.input_bytes)), made.bits_per_weight));
}

}  // namespace lily::cli
