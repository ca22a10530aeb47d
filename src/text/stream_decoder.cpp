#include "text/stream_decoder.h"

namespace lily {

std::string StreamDecoder::push(int32_t id) {
  if (special_ == SpecialTokens::skip && tokenizer_->is_special(id)) return {};
  return utf8_.push(tokenizer_->token_bytes(id));
}

}  // namespace lily
