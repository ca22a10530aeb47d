#include <fmt/format.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/output.h"
#include "model/find.h"
#include "text/tokenizer.h"

namespace lily::cli {
namespace {

/// "[1, 2]", "1,2" or "1 2" → the JSON list.
std::string as_json_list(std::string text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] == '[') return first == text.npos ? "[]" : text;
  std::string list;
  bool in_word = false;
  for (const char c : text) {
    const bool gap = c == ' ' || c == ',' || c == '\t' || c == '\r' || c == '\n';
    if (!gap && !in_word && !list.empty()) list += ',';
    if (!gap) list += c;
    in_word = !gap;
  }
  return "[" + list + "]";
}

}  // namespace

void cmd_detokenize(const Settings& s) {
  const Tokenizer tokenizer = Tokenizer::load(find_model(s.model));
  const auto ids = parse_ids(as_json_list(s.ids_list ? *s.ids_list : read_stdin()), s.ids_list ? "IDS" : "standard input");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= tokenizer.vocab_size()) {
      throw Error(ErrorCode::invalid_argument, fmt::format("element {} is {}, and the tokenizer's ids end at {}", i, ids[i],
                                                           tokenizer.vocab_size() - 1));
    }
  }
  put(tokenizer.decode(ids));
}

}  // namespace lily::cli
