#include <fmt/format.h>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"
#include "plan/fusion_table.h"

namespace lily::cli {

void cmd_help(const Settings& s) {
  if (s.markdown) return put(options_markdown());
  if (s.topic.empty()) return put(general_help());
  if (s.topic == "fusions") return put(plan::fusions_markdown());
  const Command* c = find_command(s.topic);
  if (!c) throw UsageError(fmt::format("unknown command '{}'", s.topic));
  put(command_help(*c));
}

}  // namespace lily::cli
