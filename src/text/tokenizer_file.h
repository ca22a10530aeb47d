// What tokenizer.json, tokenizer_config.json and generation_config.json say about tokens, read and checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/added_tokens.h"

namespace lily {

struct TokenizerFile {
  std::vector<std::pair<std::string, int32_t>> vocab;       // in the byte-level alphabet, as in the file
  std::vector<std::pair<std::string, std::string>> merges;  // in order of rank
  std::vector<AddedToken> added;
  std::vector<std::pair<std::string, std::string>> splits;  // {regex, name of the field}, in order
  bool nfc = false;
  bool ignore_merges = false;  // a word that is a token is not split
};

/// Reads DIR/tokenizer.json. Everything it may hold is honoured or refused by the name of the field.
TokenizerFile read_tokenizer_file(const std::filesystem::path& dir);

/// End tokens named by DIR/generation_config.json (ids) and DIR/tokenizer_config.json (a token's text). Both files
/// may be absent.
struct EndTokenNames {
  std::vector<int32_t> ids;
  std::optional<std::string> text;
};
EndTokenNames read_end_tokens(const std::filesystem::path& dir);

}  // namespace lily
