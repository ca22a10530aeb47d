#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/json_fault.h"
#include "base/log.h"
#include "model/names.h"

namespace lily {
namespace {

using Json = nlohmann::json;

std::string shown(const Json& value) {
  return shortened(value.dump(-1, ' ', true, Json::error_handler_t::replace), 80);
}

/// Keys at the level of the text model that say nothing about what is computed, or are read elsewhere: training, other
/// modalities, the draft head, file handling. In a file without text_config they lie beside the keys of the shape.
constexpr const char* kIdleKeys[] = {
    "_name_or_path",          "architectures",         "attention_dropout",    "audio_config",
    "auto_map",               "bos_token_id",          "dtype",                "eos_token_id",
    "image_token_id",         "initializer_range",     "intermediate_size",    "language_model_only",
    "mamba_ssm_dtype",        "mtp_num_hidden_layers", "output_router_logits", "mtp_use_dedicated_embeddings",
    "pad_token_id",           "router_aux_loss_coef",  "torch_dtype",          "transformers_version",
    "use_cache",              "video_token_id",        "vision_config",        "vision_end_token_id",
    "vision_start_token_id"};

/// One object of the file, with the path that messages name its keys by. It remembers which keys were asked for.
class Section {
 public:
  Section(const Json& json, std::string path, const std::string& file)
      : json_(json), path_(std::move(path)), file_(file) {}

  const Json* find(const std::string& key) const {
    asked_.insert(key);
    const auto at = json_.find(key);
    return at == json_.end() || at->is_null() ? nullptr : &*at;
  }
  std::string name(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  [[noreturn]] void fail(ErrorCode code, const std::string& key, const std::string& what) const {
    throw Error(code, fmt::format("{}: {}: {}", file_, name(key), what));
  }
  [[noreturn]] void missing(const std::string& key) const {
    fail(ErrorCode::invalid_argument, key, "the key is missing (this engine never guesses a model's shape)");
  }
  const Json& need(const std::string& key) const {
    if (const Json* value = find(key)) return *value;
    missing(key);
  }
  int integer(const std::string& key, int lowest, int highest) const {
    return as_integer(need(key), key, lowest, highest);
  }
  int as_integer(const Json& value, const std::string& key, int lowest, int highest) const {
    const bool fits = value.is_number_integer() &&
                      (value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t(highest) : true) &&
                      value.get<std::int64_t>() >= lowest && value.get<std::int64_t>() <= highest;
    if (!fits)
      fail(ErrorCode::invalid_argument, key,
           fmt::format("expected an integer from {} to {}, found {}", lowest, highest, shown(value)));
    return value.get<int>();
  }
  double number(const std::string& key, double above, double highest) const {
    const Json& value = need(key);
    if (!value.is_number() || !(value.get<double>() > above) || !(value.get<double>() <= highest))
      fail(ErrorCode::invalid_argument, key,
           fmt::format("expected a number above {} and up to {}, found {}", above, highest, shown(value)));
    return value.get<double>();
  }
  /// A key that may be absent, and when it is there must have this one value.
  void only(const std::string& key, const Json& accepted) const {
    if (const Json* value = find(key); value && *value != accepted)
      fail(ErrorCode::unsupported, key,
           fmt::format("this engine computes only {}, found {}", shown(accepted), shown(*value)));
  }
  Section object(const std::string& key) const {
    const Json& value = need(key);
    if (!value.is_object())
      fail(ErrorCode::invalid_argument, key, fmt::format("expected an object, found {}", shown(value)));
    return Section(value, name(key), file_);
  }
  const Json& json() const { return json_; }
  /// Appends the names of the keys that nobody asked for and that are not idle.
  void list_unknown(std::vector<std::string>& names) const {
    for (const auto& [key, value] : json_.items()) {
      const bool idle = std::find(std::begin(kIdleKeys), std::end(kIdleKeys), key) != std::end(kIdleKeys);
      if (!idle && !value.is_null() && !asked_.contains(key)) names.push_back(shortened(name(key), 80));
    }
  }

 private:
  mutable std::set<std::string> asked_;
  const Json& json_;
  std::string path_;
  const std::string& file_;
};

/// The first few names, and how many more there are.
std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 16;
  const std::size_t n = std::min(names.size(), kShown);
  const std::string list = fmt::format("{}", fmt::join(names.begin(), names.begin() + std::ptrdiff_t(n), ", "));
  return n == names.size() ? list : fmt::format("{} and {} more", list, names.size() - n);
}

void check_model_type(const Section& section) {
  const Json& type = section.need("model_type");
  if (type != "qwen3_5_moe" && type != "qwen3_5_moe_text")
    section.fail(ErrorCode::unsupported, "model_type",
                 fmt::format("this engine runs qwen3_5_moe and qwen3_5_moe_text, found {}", shown(type)));
}

/// What this engine does not compute, wherever the family's files may say it.
void refuse_variants(const Section& text) {
  text.only("attn_output_gate", true);
  text.only("hidden_act", "silu");
  text.only("attention_bias", false);
  text.only("norm_topk_prob", true);
  text.only("decoder_sparse_step", 1);
  text.only("mlp_only_layers", Json::array());
  text.only("use_sliding_window", false);
  text.only("sliding_window", nullptr);
}

void read_rope(const Section& text, ModelShape& shape, std::vector<std::string>& unknown) {
  // Files of transformers 5 nest these; older ones carry them at the level of the other keys.
  std::optional<Section> rope;
  if (text.find("rope_parameters"))
    rope.emplace(text.object("rope_parameters")), text.only("rope_scaling", nullptr);
  else if (text.find("rope_scaling"))
    rope.emplace(text.object("rope_scaling"));
  if (rope) {
    rope->only("rope_type", "default");
    rope->only("type", "default");
    for (const char* key :
         {"factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"})
      if (const Json* value = rope->find(key))
        rope->fail(ErrorCode::unsupported, key, "rope scaling is not supported, found " + shown(*value));
  }
  const auto value = [&](const char* key, double above, double highest) {
    const bool nested = rope && rope->find(key);
    if (!nested && !text.find(key)) {
      if (rope) rope->missing(key);
      text.fail(ErrorCode::invalid_argument, "rope_parameters",
                fmt::format("the key is missing, and so is the older {}", key));
    }
    const double number = nested ? rope->number(key, above, highest) : text.number(key, above, highest);
    if (nested && text.find(key) && text.number(key, above, highest) != number)
      text.fail(ErrorCode::invalid_argument, key,
                fmt::format("{} here, {} in {}", shown(*text.find(key)), number, rope->name(key)));
    return number;
  };
  shape.rope_theta = value("rope_theta", 1.0, 1e15);
  const double partial = value("partial_rotary_factor", 0.0, 1.0);
  const double rotary = shape.head_dim * partial;
  shape.rotary_dim = int(std::lround(rotary));
  const Section& where = rope ? *rope : text;
  if (std::abs(rotary - shape.rotary_dim) > 1e-6 || shape.rotary_dim < 2 || shape.rotary_dim % 2)
    where.fail(ErrorCode::invalid_argument, "partial_rotary_factor",
               fmt::format("head_dim {} times {} must be an even number of channels, found {}", shape.head_dim, partial,
                           rotary));
  if (!rope) return;
  // For text the three axes carry the same position: how they are interleaved has no effect, and of the sections only
  // the sum counts. Both may be absent.
  if (const Json* interleaved = rope->find("mrope_interleaved"); interleaved && !interleaved->is_boolean())
    rope->fail(ErrorCode::invalid_argument, "mrope_interleaved", "expected true or false, found " + shown(*interleaved));
  if (const Json* sections = rope->find("mrope_section")) {
    std::int64_t sum = 0;
    bool valid = sections->is_array() && sections->size() == 3;
    for (std::size_t i = 0; valid && i < 3; ++i) sum += rope->as_integer((*sections)[i], "mrope_section", 0, 1 << 20);
    if (!valid || sum != shape.rotary_dim / 2)
      rope->fail(
          ErrorCode::invalid_argument, "mrope_section",
          fmt::format("expected three numbers with the sum {}, found {}", shape.rotary_dim / 2, shown(*sections)));
  }
  rope->list_unknown(unknown);
}

void read_layer_kinds(const Section& text, ModelShape& shape) {
  const bool has_interval = text.find("full_attention_interval");
  const int interval = has_interval ? text.integer("full_attention_interval", 1, 1 << 20) : 0;
  const Json* types = text.find("layer_types");
  if (!types && !has_interval) text.missing("full_attention_interval");
  if (types && (!types->is_array() || types->size() != std::size_t(shape.layers)))
    text.fail(ErrorCode::invalid_argument, "layer_types",
              fmt::format("expected an array of {} (num_hidden_layers), found {}", shape.layers,
                          types->is_array() ? fmt::format("{} entries", types->size()) : shown(*types)));
  for (int i = 0; i < shape.layers; ++i) {
    const bool derived = has_interval && (i + 1) % interval == 0;
    bool full = derived;
    if (types) {
      const Json& type = (*types)[std::size_t(i)];
      if (type != "linear_attention" && type != "full_attention")
        text.fail(ErrorCode::unsupported, fmt::format("layer_types[{}]", i),
                  fmt::format("expected \"linear_attention\" or \"full_attention\", found {}", shown(type)));
      full = type == "full_attention";
      if (has_interval && full != derived)
        text.fail(ErrorCode::invalid_argument, fmt::format("layer_types[{}]", i),
                  fmt::format("{} contradicts full_attention_interval {}", shown(type), interval));
    }
    shape.layer_kinds.push_back(full ? LayerKind::full_attention : LayerKind::gated_deltanet);
  }
}

void check_multiple(const Section& text, const char* key, int value, const char* of, int divisor) {
  if (value % divisor)
    text.fail(ErrorCode::invalid_argument, key,
              fmt::format("expected a multiple of {} ({}), found {}", of, divisor, value));
}

ModelShape read_shape(const Section& text, std::vector<std::string>& unknown) {
  // The limits keep every product of the engine inside 64 bits and every table small; the 35B uses a 30th of them or
  // less.
  ModelShape s;
  s.hidden = text.integer("hidden_size", 1, 1 << 16);
  s.layers = text.integer("num_hidden_layers", 1, 1024);
  s.vocab = text.integer("vocab_size", 1, 1 << 22);
  s.max_context = text.integer("max_position_embeddings", 2, 1 << 28);  // a token and the next one
  s.rms_eps = float(text.number("rms_norm_eps", 0.0, 1.0));
  s.attn_heads = text.integer("num_attention_heads", 1, 1024);
  s.kv_heads = text.integer("num_key_value_heads", 1, 1024);
  s.head_dim = text.integer("head_dim", 2, 4096);
  s.gdn_key_heads = text.integer("linear_num_key_heads", 1, 1024);
  s.gdn_value_heads = text.integer("linear_num_value_heads", 1, 1024);
  s.gdn_key_dim = text.integer("linear_key_head_dim", 1, 4096);
  s.gdn_value_dim = text.integer("linear_value_head_dim", 1, 4096);
  s.conv_kernel = text.integer("linear_conv_kernel_dim", 2, 16);
  s.experts = text.integer("num_experts", 1, 4096);
  s.experts_per_token = text.integer("num_experts_per_tok", 1, 4096);
  s.expert_ffn = text.integer("moe_intermediate_size", 1, 1 << 16);
  s.shared_ffn = text.integer("shared_expert_intermediate_size", 1, 1 << 16);
  check_multiple(text, "num_attention_heads", s.attn_heads, "num_key_value_heads", s.kv_heads);
  check_multiple(text, "linear_num_value_heads", s.gdn_value_heads, "linear_num_key_heads", s.gdn_key_heads);
  if (s.experts_per_token > s.experts)
    text.fail(ErrorCode::invalid_argument, "num_experts_per_tok",
              fmt::format("expected at most num_experts ({}), found {}", s.experts, s.experts_per_token));
  refuse_variants(text);
  read_rope(text, s, unknown);
  read_layer_kinds(text, s);
  return s;
}

/// Some files give the size of the vocabulary at both levels.
void compare_vocabularies(const Section& root, const Section& text) {
  const Json *outer = root.find("vocab_size"), *inner = text.find("vocab_size");
  if (outer && inner && *outer != *inner)
    root.fail(ErrorCode::invalid_argument, "vocab_size",
              fmt::format("{} here, {} in {}", shown(*outer), shown(*inner), text.name("vocab_size")));
}

bool read_tied(const Section& root, const Section& text) {
  const auto value = [](const Section& section) -> std::optional<bool> {
    const Json* tied = section.find("tie_word_embeddings");
    if (!tied) return std::nullopt;
    if (!tied->is_boolean())
      section.fail(ErrorCode::invalid_argument, "tie_word_embeddings", "expected true or false, found " + shown(*tied));
    return tied->get<bool>();
  };
  const auto outer = value(root), inner = value(text);
  if (outer && inner && *outer != *inner)
    text.fail(ErrorCode::invalid_argument, "tie_word_embeddings",
              fmt::format("{} here, {} at top level", *inner, *outer));
  return inner.value_or(outer.value_or(false));
}

QuantSetting read_setting(const Section& block) {
  if (const Json* mode = block.find("mode"); mode && *mode != "affine")
    block.fail(ErrorCode::unsupported, "mode",
               fmt::format("quantisation mode {} is not supported, only \"affine\" is", shown(*mode)));
  const int bits = block.integer("bits", 1, 32), group = block.integer("group_size", 1, 1 << 16);
  if (!is_quant_bits(bits))
    block.fail(ErrorCode::unsupported, "bits", fmt::format("expected 2, 3, 4, 5, 6 or 8, found {}", bits));
  if (!is_quant_group(group))
    block.fail(ErrorCode::unsupported, "group_size", fmt::format("expected 32, 64 or 128, found {}", group));
  return {bits, group};
}

Quantization read_quantization(const Section& root, const char* key) {
  Quantization out;
  if (!root.find(key)) return out;
  const Section block = root.object(key);
  if (const Json* method = block.find("quant_method"); method && *method != "affine" && *method != "mlx")
    block.fail(ErrorCode::unsupported, "quant_method",
               fmt::format("{} is not supported, only MLX affine quantisation and plain bf16, f16 or f32 are",
                           shown(*method)));
  out.present = true;
  out.standard = read_setting(block);
  std::map<std::string, std::string> spelt;
  for (const auto& [path, value] : block.json().items()) {
    if (!value.is_object() && !value.is_boolean()) {
      if (path.find('.') != std::string::npos)  // a tensor's; others are bits, group_size, mode and the like
        block.fail(ErrorCode::invalid_argument, path, fmt::format("expected an object, true or false, found {}", shown(value)));
      continue;
    }
    // true = as the rest; false = left unquantised.
    QuantSetting setting = out.standard;
    if (value.is_object())
      setting = read_setting(block.object(path));
    else if (!value.get<bool>())
      setting = {};
    const std::string module(strip_prefix(path));
    const auto [at, fresh] = out.overrides.emplace(module, setting);
    if (!fresh && at->second != setting)
      block.fail(ErrorCode::invalid_argument, path, fmt::format("contradicts {}", block.name(spelt[module])));
    spelt[module] = path;
  }
  return out;
}

}  // namespace

bool is_quant_bits(std::int64_t bits) {
  return std::find(std::begin(kQuantBits), std::end(kQuantBits), bits) != std::end(kQuantBits);
}
bool is_quant_group(std::int64_t group) {
  return std::find(std::begin(kQuantGroups), std::end(kQuantGroups), group) != std::end(kQuantGroups);
}

ModelConfig parse_config(std::string_view json_text, const std::string& file) {
  const Json json = parse_json_file(json_text, file);
  if (!json.is_object())
    throw Error(ErrorCode::corrupt, fmt::format("{}: expected a JSON object, found {}", file, shown(json)));
  const Section root(json, "", file);
  check_model_type(root);
  std::optional<Section> nested;
  if (root.find("text_config")) nested.emplace(root.object("text_config"));
  const Section& text = nested ? *nested : root;
  if (text.find("model_type")) check_model_type(text);

  ModelConfig config;
  config.file = file;
  std::vector<std::string> unknown;
  config.shape = read_shape(text, unknown);
  compare_vocabularies(root, text);
  config.shape.tied_embeddings = read_tied(root, text);
  config.quantization = read_quantization(root, "quantization");
  Quantization other = read_quantization(root, "quantization_config");
  if (!config.quantization.present) {
    config.quantization = std::move(other);
  } else if (other.present &&
             (other.standard != config.quantization.standard || other.overrides != config.quantization.overrides)) {
    config.warnings.push_back(
        fmt::format("{}: quantization and quantization_config differ; quantization is used", file));
  }
  text.list_unknown(unknown);
  if (!unknown.empty())
    config.warnings.push_back(fmt::format("{}: not known to this engine and without effect: {}", file, listed(unknown)));
  return config;
}

}  // namespace lily
