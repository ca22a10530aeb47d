// The subcommands: what each is called, how it is explained, and the function that does it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace lily::cli {

struct Command {
  std::string name;
  std::string summary;  // one line
  std::string details;  // paragraphs for its help; may be empty
  std::vector<std::string> examples;
  /// Returns when the work is done. Throws UsageError (exit 2), lily::Error (exit 1) or OutputClosed (exit 0).
  void (*run)(const Settings&);
};

const std::vector<Command>& commands();
const Command* find_command(std::string_view name);  // null when there is none

void cmd_run(const Settings&);
void cmd_chat(const Settings&);
void cmd_serve(const Settings&);
void cmd_bench(const Settings&);
void cmd_logits(const Settings&);
void cmd_eval(const Settings&);
void cmd_tokenize(const Settings&);
void cmd_detokenize(const Settings&);
void cmd_template(const Settings&);
void cmd_inspect(const Settings&);
void cmd_synth(const Settings&);
void cmd_quantize(const Settings&);
void cmd_pull(const Settings&);
void cmd_help(const Settings&);

}  // namespace lily::cli
