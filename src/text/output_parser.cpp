#include "text/output_parser.h"

#include <iterator>

namespace lily {

OutputParser::Delta OutputParser::push(std::string_view text) {
  ReasoningParser::Delta parts = reasoning_.push(text);
  return {std::move(parts.reasoning), calls_.push(parts.content)};
}

OutputParser::Delta OutputParser::finish(TextEnd end) {
  ReasoningParser::Delta parts = reasoning_.finish();
  Delta delta{std::move(parts.reasoning), calls_.push(parts.content)};
  auto last = calls_.finish(end);
  delta.events.insert(delta.events.end(), std::make_move_iterator(last.begin()), std::make_move_iterator(last.end()));
  return delta;
}

}  // namespace lily
