#include "text/tokenizer_file.h"

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/input_file.h"
#include "base/json_fault.h"
#include "base/log.h"
#include "text/tokenizer_sax.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr const char* kFile = "tokenizer.json";
constexpr uint64_t kMostBytes = 256u << 20;  // the largest known has 20 MB

// The pattern of ByteLevel's own split (use_regex), the one GPT-2 was trained with.
constexpr const char* kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void refuse(const std::string& field, const std::string& found, const std::string& expected) {
  throw Error(ErrorCode::unsupported,
              std::string(kFile) + ": " + field + " is " + shortened(found, 64) + "; this tokenizer does " + expected + " only");
}

[[noreturn]] void corrupt(const std::string& field, const std::string& expected) {
  throw Error(ErrorCode::corrupt, std::string(kFile) + ": " + field + ": expected " + expected);
}

// A JSON object of the file, and the name it goes by in messages.
struct Object {
  const json& value;
  std::string name;

  std::string field(const std::string& key) const { return name.empty() ? key : name + "." + key; }

  // The member, or null when it is absent.
  const json& at(const char* key) const {
    static const json none;
    const auto it = value.find(key);
    return it == value.end() ? none : *it;
  }
  Object object(const char* key) const {
    if (!at(key).is_object()) corrupt(field(key), "an object");
    return {at(key), field(key)};
  }
  std::string text(const char* key) const {
    if (!at(key).is_string()) corrupt(field(key), "a string");
    return at(key).get<std::string>();
  }
  bool flag(const char* key, bool fallback) const {
    if (at(key).is_null()) return fallback;
    if (!at(key).is_boolean()) corrupt(field(key), "true or false");
    return at(key).get<bool>();
  }
  void must_be_false(const char* key) const {
    if (flag(key, false)) refuse(field(key), "true", "false");
  }
  void must_be_empty(const char* key) const {
    const json& v = at(key);
    if (!v.is_null() && v != "" && v != 0 && v != 0.0) refuse(field(key), v.dump(), "null");
  }
  void only(std::initializer_list<const char*> known) const {
    for (const auto& [key, v] : value.items()) {
      if (v.is_null()) continue;
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        throw Error(ErrorCode::unsupported, std::string(kFile) + ": " + field(key) + ": this field is not known");
      }
    }
  }
};

bool is_nfc(const Object& normalizer) {
  const std::string type = normalizer.text("type");
  if (type == "NFC") {
    normalizer.only({"type"});
    return true;
  }
  if (type == "Sequence") {
    const json& parts = normalizer.at("normalizers");
    if (!parts.is_array()) corrupt(normalizer.field("normalizers"), "a list");
    bool any = false;
    for (size_t i = 0; i < parts.size(); ++i) {
      const std::string name = normalizer.field("normalizers[" + std::to_string(i) + "]");
      if (!parts[i].is_object()) corrupt(name, "an object");
      if (!parts[i].contains("type") || parts[i]["type"] != "NFC") refuse(name, parts[i].dump(), "NFC");
      any = true;
    }
    return any;
  }
  refuse(normalizer.field("type"), type, "NFC");
}

void read_split(const Object& split, TokenizerFile& file) {
  split.only({"type", "pattern", "behavior", "invert"});
  const std::string behavior = split.text("behavior");
  if (behavior != "Isolated") refuse(split.field("behavior"), behavior, "Isolated");
  split.must_be_false("invert");
  const Object pattern = split.object("pattern");
  if (!pattern.at("Regex").is_string()) refuse(split.field("pattern"), pattern.value.dump(), "a Regex");
  file.splits.emplace_back(pattern.text("Regex"), std::string(kFile) + ": " + pattern.field("Regex"));
}

// `trim_offsets` concerns offsets into the text, which nobody asks for here.
void check_byte_level(const Object& level) {
  level.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
}

void read_pre_tokenizer(const Object& step, TokenizerFile& file, bool& byte_level) {
  const std::string type = step.text("type");
  if (byte_level) refuse(step.name, type + " after ByteLevel", "ByteLevel last");
  if (type == "Split") {
    read_split(step, file);
  } else if (type == "ByteLevel") {
    check_byte_level(step);
    if (step.flag("add_prefix_space", true)) refuse(step.field("add_prefix_space"), "true", "false");
    if (step.flag("use_regex", true)) {
      file.splits.emplace_back(kGpt2Regex, std::string(kFile) + ": " + step.field("use_regex"));
    }
    byte_level = true;
  } else {
    refuse(step.field("type"), type, "Split and ByteLevel");
  }
}

void read_pre_tokenizers(const Object& root, TokenizerFile& file) {
  bool byte_level = false;
  const Object top = root.object("pre_tokenizer");
  if (top.text("type") != "Sequence") {
    read_pre_tokenizer(top, file, byte_level);
  } else {
    top.only({"type", "pretokenizers"});
    const json& steps = top.at("pretokenizers");
    if (!steps.is_array()) corrupt(top.field("pretokenizers"), "a list");
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string name = top.field("pretokenizers[" + std::to_string(i) + "]");
      if (!steps[i].is_object()) corrupt(name, "an object");
      read_pre_tokenizer({steps[i], name}, file, byte_level);
    }
  }
  if (!byte_level) refuse("pre_tokenizer", "without ByteLevel", "byte-level text");
}

void check_model(const Object& model, TokenizerFile& file) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (!model.at("type").is_null() && model.text("type") != "BPE") refuse("model.type", model.text("type"), "BPE");
  model.must_be_empty("dropout");
  model.must_be_empty("continuing_subword_prefix");
  model.must_be_empty("end_of_word_suffix");
  model.must_be_false("byte_fallback");
  model.must_be_false("fuse_unk");
  // unk_token needs no check: every byte has a token, so nothing is ever unknown.
  file.ignore_merges = model.flag("ignore_merges", false);
}

void read_added_tokens(const Object& root, TokenizerFile& file) {
  const json& list = root.at("added_tokens");
  if (list.is_null()) return;
  if (!list.is_array()) corrupt("added_tokens", "a list");
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string name = "added_tokens[" + std::to_string(i) + "]";
    if (!list[i].is_object()) corrupt(name, "an object");
    const Object entry{list[i], name};
    entry.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    if (!entry.at("id").is_number_integer()) corrupt(entry.field("id"), "a token id");
    const auto id = entry.at("id").get<int64_t>();
    if (id < 0 || id > INT32_MAX) corrupt(entry.field("id"), "a token id");
    const std::string content = entry.text("content");
    if (content.empty()) corrupt(entry.field("content"), "a text of one character or more");
    entry.must_be_false("single_word");
    file.added.push_back({static_cast<int32_t>(id), content, entry.flag("lstrip", false), entry.flag("rstrip", false),
                          entry.flag("normalized", !entry.flag("special", false)), entry.flag("special", false)});
  }
}

json parse_small(const std::filesystem::path& path, const std::string& text) {
  json value = parse_json_file(text, path.string());
  if (value.is_object()) return value;
  throw Error(ErrorCode::corrupt, path.string() + ": expected a JSON object");
}

void read_generation_ids(const std::filesystem::path& path, const json& config, std::vector<int32_t>& ids) {
  const auto it = config.find("eos_token_id");
  if (it == config.end() || it->is_null()) return;
  const json list = it->is_array() ? *it : json::array({*it});
  for (const json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX) {
      throw Error(ErrorCode::corrupt,
                  path.string() + ": eos_token_id: expected a token id or a list of them, found " + it->dump());
    }
    ids.push_back(id.get<int32_t>());
  }
}

}  // namespace

TokenizerFile read_tokenizer_file(const std::filesystem::path& dir) {
  const auto path = dir / kFile;
  const auto text = read_optional_text_file(path, kMostBytes);
  if (!text)
    throw Error(ErrorCode::not_found, path.string() + ": no such file; a tokenizer is read from tokenizer.json");
  TokenizerFile file;
  TokenizerSax sax(file, path.string(), *text);
  json::sax_parse(*text, &sax);
  if (!sax.rest().is_object()) throw Error(ErrorCode::corrupt, path.string() + ": expected a JSON object");
  const Object root{sax.rest(), ""};
  root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  for (const char* key : {"truncation", "padding"}) {
    if (!root.at(key).is_null()) refuse(key, root.at(key).dump(), "null");
  }
  if (!root.at("normalizer").is_null()) file.nfc = is_nfc(root.object("normalizer"));
  read_pre_tokenizers(root, file);
  for (const char* key : {"post_processor", "decoder"}) {
    if (root.at(key).is_null() && std::string(key) == "post_processor") continue;
    const Object step = root.object(key);
    if (step.text("type") != "ByteLevel") refuse(step.field("type"), step.text("type"), "ByteLevel");
    check_byte_level(step);
  }
  check_model(root.object("model"), file);
  read_added_tokens(root, file);
  if (file.vocab.empty()) corrupt("model.vocab", "an object with tokens and ids");
  return file;
}

EndTokenNames read_end_tokens(const std::filesystem::path& dir) {
  EndTokenNames names;
  const auto generation = dir / "generation_config.json";
  if (const auto text = read_optional_text_file(generation)) {
    read_generation_ids(generation, parse_small(generation, *text), names.ids);
  }
  const auto config_path = dir / "tokenizer_config.json";
  if (const auto text = read_optional_text_file(config_path)) {
    const json config = parse_small(config_path, *text);
    for (const char* key : {"add_bos_token", "add_eos_token", "add_prefix_space"}) {
      if (config.contains(key) && config[key] == true) {
        throw Error(ErrorCode::unsupported,
                    config_path.string() + ": " + key + " is true; this tokenizer does false only");
      }
    }
    const json eos = config.value("eos_token", json());
    const json name = eos.is_object() ? eos.value("content", json()) : eos;
    if (name.is_string()) {
      names.text = name.get<std::string>();
    } else if (!eos.is_null()) {
      throw Error(ErrorCode::corrupt, config_path.string() + ": eos_token: expected a string or an object with " +
                                          "'content', found " + eos.dump());
    }
  }
  return names;
}

}  // namespace lily
