// Tokenizer files for synthetic checkpoints: bytes, control tokens, fillers. The control tokens and their order are
// those of the Qwen3.5 and 3.6 vocabulary, where they begin at 248044.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/output_file.h"
#include "model/synthetic.h"

namespace lily {
namespace {

using Json = nlohmann::json;  // sorted keys: the ordered kind searches linearly, and a vocabulary has 248 000

constexpr int kFirstRealControl = 248044;

struct Control {
  const char* text;
  bool special;
};
constexpr Control kControls[] = {
    {"<|endoftext|>", true},      {"<|im_start|>", true},
    {"<|im_end|>", true},         {"<|object_ref_start|>", true},
    {"<|object_ref_end|>", true}, {"<|box_start|>", true},
    {"<|box_end|>", true},        {"<|quad_start|>", true},
    {"<|quad_end|>", true},       {"<|vision_start|>", true},
    {"<|vision_end|>", true},     {"<|vision_pad|>", true},
    {"<|image_pad|>", true},      {"<|video_pad|>", true},
    {"<tool_call>", false},       {"</tool_call>", false},
    {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
    {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
    {"<|repo_name|>", false},     {"<|file_sep|>", false},
    {"<tool_response>", false},   {"</tool_response>", false},
    {"<think>", false},           {"</think>", false},
    {"<|audio_start|>", true},    {"<|audio_end|>", true},
    {"<tts_pad>", true},          {"<tts_text_bos>", true},
    {"<tts_text_eod>", true},     {"<tts_text_bos_single>", true},
    {"<|audio_pad|>", true},
};
/// What a chat needs: kept when the vocabulary has no room for all.
constexpr std::string_view kNeeded[] = {"<|endoftext|>",    "<|im_start|>", "<|im_end|>",
                                        "<tool_call>",      "</tool_call>", "<tool_response>",
                                        "</tool_response>", "<think>",      "</think>"};

constexpr const char* kSplitRegex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The printable stand-ins of byte-level vocabularies: a printable Latin-1 byte is itself, the others follow from
/// U+0100 on.
std::vector<std::pair<int, std::string>> byte_symbols() {
  const auto utf8 = [](int c) {
    return c < 0x80 ? std::string(1, char(c)) : std::string{char(0xC0 | (c >> 6)), char(0x80 | (c & 0x3F))};
  };
  std::vector<std::pair<int, std::string>> out;
  std::vector<int> rest;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    if (printable)
      out.emplace_back(byte, utf8(byte));
    else
      rest.push_back(byte);
  }
  for (std::size_t i = 0; i < rest.size(); ++i) out.emplace_back(rest[i], utf8(256 + int(i)));
  return out;
}

std::vector<Control> controls_for(int vocab) {
  std::vector<Control> all(std::begin(kControls), std::end(kControls));
  if (vocab >= 256 + int(all.size())) return all;
  std::erase_if(all, [](const Control& c) {
    return std::find(std::begin(kNeeded), std::end(kNeeded), c.text) == std::end(kNeeded);
  });
  if (vocab < 256 + int(all.size())) all.clear();
  return all;
}

Json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
}

Json pre_tokenizer() {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", kSplitRegex}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level()})}};
}

/// An entry of added_tokens, without its id.
Json control_json(const Control& control) {
  return {{"content", control.text}, {"single_word", false}, {"lstrip", false},
          {"rstrip", false},         {"normalized", false},  {"special", control.special}};
}

/// tokenizer.json: bytes and fillers up to `first`, then the control tokens.
Json tokenizer_json(const std::vector<Control>& controls, int first) {
  Json tokens = Json::object(), added = Json::array();
  int id = 0;
  for (const auto& [byte, symbol] : byte_symbols()) tokens[symbol] = id++;
  // No merge leads to a filler: text never becomes one, but a model that samples its id prints " w1234" ("Ġ" is a
  // space).
  for (; id < first; ++id) tokens[fmt::format("Ġw{}", id)] = id;
  for (const Control& control : controls) {
    Json entry = control_json(control);
    entry["id"] = id++;
    added.push_back(std::move(entry));
  }
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", std::move(tokens)},
                      {"merges", Json::array()}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", std::move(added)},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer", pre_tokenizer()},
          {"post_processor", byte_level()},
          {"decoder", byte_level()},
          {"model", model}};
}

Json tokenizer_config_json(const std::vector<Control>& controls, int first, int max_context) {
  Json decoder = Json::object();
  for (std::size_t i = 0; i < controls.size(); ++i) decoder[std::to_string(first + int(i))] = control_json(controls[i]);
  return {{"add_bos_token", false},
          {"add_prefix_space", false},
          {"added_tokens_decoder", std::move(decoder)},
          {"bos_token", nullptr},
          {"clean_up_tokenization_spaces", false},
          {"eos_token", "<|im_end|>"},
          {"errors", "replace"},
          {"model_max_length", max_context},
          {"pad_token", "<|endoftext|>"},
          {"split_special_tokens", false},
          {"tokenizer_class", "Qwen2Tokenizer"},
          {"unk_token", nullptr}};
}

}  // namespace

bool write_synthetic_tokenizer(const std::filesystem::path& dir, int vocab, int max_context) {
  const std::vector<Control> controls = controls_for(vocab);
  if (controls.empty()) return false;
  const int count = int(controls.size());
  const int first = vocab >= kFirstRealControl + count ? kFirstRealControl : vocab - count;
  write_text_file(dir / "tokenizer.json", tokenizer_json(controls, first).dump(1) + "\n");
  write_text_file(dir / "tokenizer_config.json", tokenizer_config_json(controls, first, max_context).dump(1) + "\n");
  // <|endoftext|> is the first control token, <|im_end|> the third.
  const Json generation = {{"bos_token_id", first}, {"do_sample", true},  {"eos_token_id", {first + 2, first}},
                           {"pad_token_id", first}, {"temperature", 1.0}, {"top_k", 20},
                           {"top_p", 0.95}};
  write_text_file(dir / "generation_config.json", generation.dump(1) + "\n");
  return true;
}

}  // namespace lily
