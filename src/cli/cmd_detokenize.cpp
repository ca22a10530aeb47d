#include <fmt/format.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"
#include "model/find.h"
#include "text/tokenizer.h"

namespace lily::cli {

void cmd_detokenize(const Settings& s) {
  const Tokenizer tokenizer = Tokenizer::load(find_model(s.model));
  const std::string from = s.ids_list ? "IDS" : "standard input";
  const auto ids = parse_loose_ids(s.ids_list ? *s.ids_list : read_stdin(), from);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= tokenizer.vocab_size()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("{}: element {} is {}, and the tokenizer's ids end at {}",
                                                           from, i, ids[i], tokenizer.vocab_size() - 1));
    }
  }
  put(tokenizer.decode(ids));
}

}  // namespace lily::cli
