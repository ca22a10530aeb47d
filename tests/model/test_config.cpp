// config.json: every key of the family's table, what may be absent, what is refused.
#include <gtest/gtest.h>

#include "model/fixture.h"

namespace lily {
namespace {

using Json = nlohmann::json;

std::string error_of(const Json& config) {
  try {
    parse_config(config.dump(), "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
/// The error of the small config after `change` of its text part.
std::string text_error(const std::function<void(Json&)>& change) {
  Json config = small_config();
  change(config["text_config"]);
  return error_of(config);
}
void expect_names(const std::string& message, const std::vector<std::string>& words) {
  EXPECT_NE(message, "") << "accepted";
  for (const std::string& word : words)
    EXPECT_NE(message.find(word), std::string::npos) << "expected \"" << word << "\" in: " << message;
}

TEST(Config, ReadsTheShape) {
  const ModelShape s = parse_config(small_config().dump(), "config.json").shape;
  EXPECT_EQ(s.hidden, 128);
  EXPECT_EQ(s.vocab, 300);
  EXPECT_EQ(s.rotary_dim, 8);
  EXPECT_EQ(s.rope_theta, 1e7);
  EXPECT_EQ(s.rms_eps, 1e-6f);
  EXPECT_EQ(s.layer_kinds[3], LayerKind::full_attention);
  EXPECT_EQ(s.count(LayerKind::gated_deltanet), 3);
  EXPECT_EQ(s.conv_channels(), 256);
}

TEST(Config, EveryKeyOfTheTableIsNeeded) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rope_parameters",
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
        "shared_expert_intermediate_size", "vocab_size", "rms_norm_eps", "max_position_embeddings"}) {
    expect_names(text_error([&](Json& text) { text.erase(key); }),
                 {"config.json", std::string("text_config.") + key, "missing"});
    expect_names(text_error([&](Json& text) { text[key] = nullptr; }), {key, "missing"});
    expect_names(text_error([&](Json& text) { text[key] = "12"; }), {key, "\"12\""});
    expect_names(text_error([&](Json& text) { text[key] = -1; }), {key, "-1"});
  }
  for (const char* key : {"rope_theta", "partial_rotary_factor"})
    expect_names(text_error([&](Json& text) { text["rope_parameters"].erase(key); }), {key, "missing"});
  Json config = small_config();
  config.erase("model_type");
  expect_names(error_of(config), {"model_type", "missing"});
}

TEST(Config, TextKeysMayLieAtTopLevel) {
  Json flat = small_text_config();
  EXPECT_EQ(error_of(flat), "");
  flat["model_type"] = "qwen3_5_moe";
  EXPECT_EQ(error_of(flat), "");
  flat.erase("head_dim");
  expect_names(error_of(flat), {"config.json: head_dim", "missing"});
}

TEST(Config, OlderRopeKeys) {
  const auto older = [](Json& text) {
    text.erase("rope_parameters");
    text["rope_theta"] = 5e6;
    text["partial_rotary_factor"] = 0.5;
    text["rope_scaling"] = nullptr;
  };
  Json config = small_config();
  older(config["text_config"]);
  const ModelShape s = parse_config(config.dump(), "c").shape;
  EXPECT_EQ(s.rope_theta, 5e6);
  EXPECT_EQ(s.rotary_dim, 16);
  config["text_config"].erase("partial_rotary_factor");
  expect_names(error_of(config), {"partial_rotary_factor"});
  // Both, and they disagree.
  expect_names(text_error([](Json& text) { text["rope_theta"] = 5e6; }), {"rope_theta", "rope_parameters.rope_theta"});
  EXPECT_EQ(text_error([](Json& text) { text["rope_theta"] = 1e7; }), "");
}

TEST(Config, LayerTypes) {
  EXPECT_EQ(text_error([](Json& text) { text.erase("layer_types"); }), "");
  EXPECT_EQ(text_error([](Json& text) { text.erase("full_attention_interval"); }), "");
  expect_names(text_error([](Json& text) {
                 text.erase("layer_types");
                 text.erase("full_attention_interval");
               }),
               {"full_attention_interval", "missing"});
  expect_names(text_error([](Json& text) { text["layer_types"][1] = "full_attention"; }),
               {"layer_types[1]", "full_attention_interval 4"});
  expect_names(text_error([](Json& text) { text["layer_types"][1] = "sliding_attention"; }),
               {"layer_types[1]", "sliding_attention"});
  expect_names(text_error([](Json& text) { text["layer_types"].push_back("full_attention"); }),
               {"layer_types", "4", "5 entries"});
  expect_names(text_error([](Json& text) { text["layer_types"] = 7; }), {"layer_types", "7"});
  Json config = small_config();
  config["text_config"].erase("layer_types");
  config["text_config"]["full_attention_interval"] = 2;
  EXPECT_EQ(parse_config(config.dump(), "c").shape.count(LayerKind::full_attention), 2);
}

TEST(Config, OtherVariantsAreRefusedByName) {
  const std::vector<std::pair<const char*, Json>> wrong = {
      {"attn_output_gate", false},  {"hidden_act", "gelu"},        {"attention_bias", true},
      {"norm_topk_prob", false},    {"mlp_only_layers", {1}},      {"decoder_sparse_step", 2},
      {"use_sliding_window", true}, {"tie_word_embeddings", "no"}, {"model_type", "qwen3_moe"}};
  for (const auto& [key, value] : wrong)  // captured by name: clang 14 captures no structured binding by itself
    expect_names(text_error([&key = key, &value = value](Json& text) { text[key] = value; }),
                 {std::string("text_config.") + key, value.dump()});
  for (const char* key : {"rope_type", "type"})
    expect_names(text_error([&](Json& text) { text["rope_parameters"][key] = "yarn"; }), {key, "yarn"});
  expect_names(text_error([](Json& text) { text["rope_parameters"]["factor"] = 4; }), {"rope_parameters.factor"});
  // Also where rope_parameters is there and nothing would read it.
  expect_names(text_error([](Json& text) { text["rope_scaling"] = {{"type", "yarn"}}; }), {"rope_scaling", "yarn"});
  expect_names(text_error([](Json& text) { text["sliding_window"] = 128; }), {"sliding_window", "128"});
  Json config = small_config();
  config["model_type"] = "llama";
  expect_names(error_of(config), {"model_type", "llama", "qwen3_5_moe"});
  for (const char* key : {"attn_output_gate", "hidden_act", "attention_bias", "tie_word_embeddings"})
    EXPECT_EQ(text_error([&](Json& text) { text.erase(key); }), "") << key;
  for (const char* key : {"dtype", "torch_dtype", "mtp_num_hidden_layers", "router_aux_loss_coef", "mamba_ssm_dtype"})
    EXPECT_EQ(text_error([&](Json& text) { text[key] = 1; }), "") << key;
}

TEST(Config, NumbersMustFit) {
  const std::vector<std::tuple<const char*, Json, const char*>> wrong = {
      {"hidden_size", 1e300, "hidden_size"},
      {"hidden_size", 2048.5, "hidden_size"},
      {"vocab_size", 9223372036854775807LL, "vocab_size"},
      {"vocab_size", 18446744073709551615ULL, "vocab_size"},
      {"num_hidden_layers", 2000000000, "num_hidden_layers"},
      {"num_hidden_layers", 0, "num_hidden_layers"},
      {"num_attention_heads", 3, "num_attention_heads"},
      {"linear_num_value_heads", 3, "linear_num_value_heads"},
      {"num_experts_per_tok", 5, "num_experts_per_tok"},
      {"head_dim", 33, "partial_rotary_factor"},
      {"linear_conv_kernel_dim", 1, "linear_conv_kernel_dim"},
      {"rms_norm_eps", 0, "rms_norm_eps"},
      {"num_hidden_layers", true, "num_hidden_layers"},
      {"rms_norm_eps", Json::array(), "rms_norm_eps"}};
  for (const auto& [key, value, named] : wrong)
    expect_names(text_error([&key = key, &value = value](Json& text) { text[key] = value; }), {named});
  expect_names(text_error([](Json& text) { text["rope_parameters"]["partial_rotary_factor"] = 2; }),
               {"partial_rotary_factor", "2"});
  expect_names(text_error([](Json& text) {
                 text["rope_parameters"]["mrope_section"] = {11, 11, 10};
               }),
               {"mrope_section", "4"});
  for (const char* key : {"mrope_section", "mrope_interleaved"})
    EXPECT_EQ(text_error([&](Json& text) { text["rope_parameters"].erase(key); }), "");
  expect_names(text_error([](Json& text) { text["rope_parameters"]["mrope_interleaved"] = 1; }),
               {"rope_parameters.mrope_interleaved", "true or false"});
}

TEST(Config, NotAConfig) {
  try {
    parse_config("{\"model_type\": }", "config.json");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "config.json: not JSON: byte 16 (line 1, column 16): expected a value, found '}'");
  }
  EXPECT_THROW(parse_config("{\"model_type\": 1e999}", "config.json"), Error);
  for (const char* text : {"", "{", "[]", "7", "null", "\"x\"", "{\"model_type\":{}}", "\xff"}) {
    EXPECT_THROW(parse_config(text, "config.json"), Error) << text;
  }
  EXPECT_THROW(parse_config(std::string(1000000, '['), "config.json"), Error);
  Json config = small_config();
  config["text_config"] = 7;
  expect_names(error_of(config), {"text_config", "object"});
}

/// The warnings of a config that is accepted.
std::vector<std::string> warnings_of(const Json& config) {
  return parse_config(config.dump(), "config.json").warnings;
}

TEST(Config, UnknownKeysAreListedOnce) {
  Json config = small_config();
  config["frob"] = 1;  // not of the text model
  EXPECT_TRUE(warnings_of(config).empty());
  config["text_config"]["frob"] = 1;
  config["text_config"]["nothing"] = nullptr;
  config["text_config"]["rope_parameters"]["beta_fast"] = 32;
  const auto warnings = warnings_of(config);
  ASSERT_EQ(warnings.size(), 1u);
  expect_names(warnings[0], {"config.json", "text_config.frob", "text_config.rope_parameters.beta_fast"});
  EXPECT_EQ(warnings[0].find("nothing"), std::string::npos);
  for (int i = 0; i < 30; ++i) config["text_config"]["frob" + std::to_string(i)] = 1;
  ASSERT_EQ(warnings_of(config).size(), 1u);
  expect_names(warnings_of(config)[0], {"and 16 more"});
  Json flat = small_text_config();
  flat["vision_config"] = {{"depth", 27}};
  flat["architectures"] = {"x"};
  flat["quantization"] = quantization_json(4, 64);
  flat["quantization_config"] = quantization_json(4, 64);
  EXPECT_TRUE(warnings_of(flat).empty());
  flat["frob"] = 1;
  ASSERT_EQ(warnings_of(flat).size(), 1u);
  expect_names(warnings_of(flat)[0], {": frob"});
}

TEST(Config, KnownFilesAreQuiet) {
  const std::string source = LILY_SOURCE_DIR;
  for (const char* file :
       {"/models/tiny/config.json", "/tests/data/golden/t1/config.json", "/tests/data/golden/r1/config.json",
        "/tests/data/golden/f1/config.json", "/tests/fuzz/seeds/config/nested.json",
        "/tests/fuzz/seeds/config/flat_older.json"}) {
    const std::string text = read_bytes(source + file);
    ASSERT_NE(text, "") << file;
    for (const std::string& warning : parse_config(text, file).warnings) ADD_FAILURE() << warning;
  }
  for (const std::string& warning : parse_config(preset_config("qwen3.6-35b-a3b"), "preset").warnings)
    ADD_FAILURE() << warning;
}

TEST(Config, TheLevelsMustAgreeOnTheVocabulary) {
  Json config = small_config();
  config["vocab_size"] = 300;
  EXPECT_EQ(error_of(config), "");
  config["vocab_size"] = 301;
  expect_names(error_of(config), {"config.json: vocab_size", "301", "300", "text_config.vocab_size"});
}

TEST(Config, WindowOfOneToken) {
  expect_names(text_error([](Json& text) { text["max_position_embeddings"] = 1; }),
               {"text_config.max_position_embeddings", "from 2 to", "found 1"});
  EXPECT_EQ(text_error([](Json& text) { text["max_position_embeddings"] = 2; }), "");
}

TEST(Config, TiedEmbeddings) {
  Json config = small_config();
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_TRUE(parse_config(config.dump(), "c").shape.tied_embeddings);
  config["tie_word_embeddings"] = false;
  expect_names(error_of(config), {"tie_word_embeddings"});
  config["text_config"].erase("tie_word_embeddings");
  EXPECT_FALSE(parse_config(config.dump(), "c").shape.tied_embeddings);
}

TEST(Config, QuantizationOverridesUnderEveryPrefix) {
  for (const char* prefix : {"model.language_model.", "language_model.model.", "language_model.", "model.", ""}) {
    Json config = small_config();
    config["quantization"][std::string(prefix) + "layers.0.mlp.gate"] = {{"bits", 8}, {"group_size", 32}};
    config["quantization"][std::string(prefix) + "lm_head"] = false;
    const Quantization q = parse_config(config.dump(), "c").quantization;
    EXPECT_EQ(q.of("layers.0.mlp.gate"), (QuantSetting{8, 32})) << prefix;
    EXPECT_EQ(q.of("lm_head"), (QuantSetting{0, 0})) << prefix;
    EXPECT_EQ(q.of("layers.1.mlp.gate"), (QuantSetting{4, 64})) << prefix;
  }
}

TEST(Config, QuantizationRefusals) {
  const auto with = [](const std::function<void(Json&)>& change, const char* key = "quantization") {
    Json config = small_config();
    if (std::string(key) != "quantization") config[key] = config["quantization"], config.erase("quantization");
    change(config[key]);
    return error_of(config);
  };
  for (const char* mode : {"mxfp4", "nvfp4", "mxfp8"})
    for (const char* key : {"quantization", "quantization_config"})
      expect_names(with([&](Json& q) { q["mode"] = mode; }, key), {key, "mode", mode, "not supported"});
  expect_names(with([](Json& q) {
                 q["model.layers.0.mlp.gate"] = {{"bits", 4}, {"group_size", 32}, {"mode", "mxfp4"}};
               }),
               {"quantization.model.layers.0.mlp.gate.mode", "mxfp4", "not supported"});
  expect_names(with([](Json& q) { q["quant_method"] = "fp8"; }, "quantization_config"),
               {"quant_method", "fp8", "not supported"});
  expect_names(with([](Json& q) { q["bits"] = 7; }), {"quantization.bits", "7"});
  expect_names(with([](Json& q) { q["group_size"] = 16; }), {"quantization.group_size", "16"});
  for (const Json& scalar : {Json("x"), Json(-1), Json(), Json::array()})
    expect_names(with([&](Json& q) { q["model.layers.0.mlp.gate"] = scalar; }), {"quantization.model.layers.0.mlp.gate", "true or false"});
  expect_names(with([](Json& q) { q.erase("bits"); }), {"quantization.bits", "missing"});
  expect_names(with([](Json& q) {
                 q["model.lm_head"] = {{"bits", 8}, {"group_size", 64}};
                 q["lm_head"] = {{"bits", 6}, {"group_size", 64}};
               }),
               {"lm_head", "contradicts"});
}

}  // namespace
}  // namespace lily
