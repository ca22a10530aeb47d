// Reads tokenizer.json in one pass: vocabulary and merges into flat lists, all the rest as JSON.
//
// A vocabulary of 150,000 tokens as a JSON tree would cost more time and memory than all the rest of loading.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer_file.h"

namespace lily {

class TokenizerSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  using json = nlohmann::json;

  /// Lists go to `file.vocab` and `file.merges`; `name` is the file's name and `text` its text, for messages.
  TokenizerSax(TokenizerFile& file, std::string name, std::string_view text)
      : file_(file), name_(std::move(name)), text_(text) {}

  /// The file without `model.vocab` and `model.merges`, each replaced by null.
  const json& rest() const { return root_; }

  bool null() override { return value(nullptr); }
  bool boolean(bool v) override { return value(v); }
  bool number_integer(number_integer_t v) override { return number(v, v); }
  bool number_unsigned(number_unsigned_t v) override;
  bool number_float(number_float_t v, const string_t&) override { return value(v); }
  bool string(string_t& v) override;
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override;
  bool key(string_t& v) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override;

 private:
  enum class Mode { tree, vocab, merges, merge_pair };

  bool number(json v, int64_t id);
  bool value(json v);
  json* place(json v);
  [[noreturn]] void fail(const std::string& what) const;

  TokenizerFile& file_;
  std::string name_;
  std::string_view text_;
  Mode mode_ = Mode::tree;
  json root_;
  std::vector<json*> open_;        // containers being filled, outermost first
  std::vector<std::string> keys_;  // the last key of each open container, "" in arrays
  std::string token_;              // vocabulary key waiting for its id
  std::vector<std::string> pair_;  // parts of the merge being read
};

}  // namespace lily
