#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/output.h"
#include "model/find.h"
#include "text/tokenizer.h"

namespace lily::cli {

void cmd_tokenize(const Settings& s) {
  const Tokenizer tokenizer = Tokenizer::load(find_model(s.model));
  const std::string text = s.text ? *s.text : read_stdin();
  const auto ids = tokenizer.encode(text, s.special ? ControlTokens::parse : ControlTokens::as_text);
  put(fmt::format("[{}]\n", fmt::join(ids, ", ")));
}

}  // namespace lily::cli
