#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/load.h"
#include "cli/memory_plan.h"
#include "cli/output.h"
#include "model/check.h"
#include "model/summary.h"
#include "plan/explain.h"

namespace lily::cli {
namespace {

using Json = nlohmann::ordered_json;

/// The double that prints as the float does: 1e-06, where widening gives 9.999999974752427e-07.
double as_printed(float value) {
  return std::stod(fmt::format("{}", value));
}

Json config_json(const ModelShape& m) {
  return {{"hidden", m.hidden},
          {"layers", m.layers},
          {"gated_deltanet_layers", m.count(LayerKind::gated_deltanet)},
          {"full_attention_layers", m.count(LayerKind::full_attention)},
          {"vocab", m.vocab},
          {"max_context", m.max_context},
          {"rms_eps", as_printed(m.rms_eps)},
          {"tied_embeddings", m.tied_embeddings},
          {"attn_heads", m.attn_heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"rotary_dim", m.rotary_dim},
          {"rope_theta", m.rope_theta},
          {"gdn_key_heads", m.gdn_key_heads},
          {"gdn_value_heads", m.gdn_value_heads},
          {"gdn_key_dim", m.gdn_key_dim},
          {"gdn_value_dim", m.gdn_value_dim},
          {"conv_kernel", m.conv_kernel},
          {"experts", m.experts},
          {"experts_per_token", m.experts_per_token},
          {"expert_ffn", m.expert_ffn},
          {"shared_ffn", m.shared_ffn}};
}

Json tensors_json(const std::vector<TensorGroup>& groups) {
  Json list = Json::array();
  for (const TensorGroup& g : groups) {
    list.push_back({{"part", g.part},
                    {"role", g.role},
                    {"shape", g.shape},
                    {"stored", g.stored},
                    {"bits", g.bits},
                    {"group", g.group},
                    {"tensors", g.tensors},
                    {"weights", g.weights},
                    {"bytes", g.bytes}});
  }
  return list;
}

Json memory_json(const MemoryPlan& m) {
  return {{"context", m.context},     {"weights", m.weights},   {"kv_per_token", m.kv_per_token}, {"kv", m.kv},
          {"recurrent_state", m.recurrent_state}, {"snapshots", m.snapshots}, {"scratch", m.scratch},
          {"logits", m.logits},       {"total", m.total()}};
}

plan::CostInput decode_input(const StateLayout& layout, std::int64_t context) {
  return {.rows = 1, .position = context - 1, .output_rows = 1, .kv_type = layout.kv_type};
}

plan::CostInput prefill_input(Engine& engine, std::int64_t context) {
  const auto rows = int(std::min<std::int64_t>(engine.backend().max_rows(), context));
  return {
      .rows = rows, .position = context - rows, .output_rows = 1, .kv_type = engine.backend().state_layout().kv_type};
}

std::string config_text(const Json& config) {
  std::string text = "configuration\n";
  for (const auto& [key, value] : config.items()) text += fmt::format("  {:<24}{}\n", key, value.dump());
  return text;
}

std::string tensors_text(const std::vector<TensorGroup>& groups) {
  std::string text = fmt::format("\n{:<18}{:<22}{:<20}{:<34}{:>8}{:>12}{:>12}\n", "tensors", "role", "shape", "stored",
                                 "tensors", "M weights", "bytes");
  std::int64_t weights = 0, bytes = 0;
  for (const TensorGroup& g : groups) {
    text += fmt::format("  {:<16}{:<22}{:<20}{:<34}{:>8}{:>12.3f}{:>12}\n", g.part, g.role,
                        shape_text(g.shape), g.stored, g.tensors, double(g.weights) / 1e6, human_bytes(double(g.bytes)));
    weights += g.weights;
    bytes += g.bytes;
  }
  return text + fmt::format("  {:<102}{:>12.3f}{:>12}\n",
                            fmt::format("sum, {:.3f} bits a weight", 8.0 * double(bytes) / double(weights)),
                            double(weights) / 1e6, human_bytes(double(bytes)));
}

std::string memory_text(const MemoryPlan& m) {
  std::string text = fmt::format("\nmemory for one conversation of {} tokens\n", m.context);
  const auto line = [&](std::int64_t bytes, const std::string& label) {
    text += fmt::format("  {:<40}{:>12}\n", label, human_bytes(double(bytes)));
  };
  line(m.weights, "weights (mapped from the files)");
  line(m.kv, fmt::format("KV, {} B a token", m.kv_per_token));
  line(m.recurrent_state, "recurrent state and convolution window");
  line(m.snapshots, "snapshots, at most");
  line(m.scratch, "scratch, at most");
  line(m.logits, "logits");
  line(m.total(), "sum");
  return text;
}

}  // namespace

void cmd_inspect(const Settings& s) {
  const Ready ready = load(s);
  Engine& engine = *ready.engine;
  const Weights& weights = ready.model->weights;
  const std::int64_t context = s.context ? s.context : engine.max_context();
  if (context > engine.max_context()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--context {}: expected 1 to {}, this model's window", context, engine.max_context()));
  }
  if (s.check) check_finite(weights, ready.dir.string(), true);
  const auto groups = summarize(weights);
  const Json config = config_json(engine.shape());
  const MemoryPlan memory = memory_plan(engine, weights, context);
  const auto decode = decode_input(engine.backend().state_layout(), context);
  const auto prefill = prefill_input(engine, context);
  const plan::Plan& decode_plan = engine.backend().plan(plan::Phase::decode);
  const plan::Plan& prefill_plan = engine.backend().plan(plan::Phase::prefill);
  if (s.json) {
    const Json all = {{"model", ready.dir.string()},
                      {"backend", engine.backend().name()},
                      {"config", config},
                      {"tensors", tensors_json(groups)},
                      {"memory", memory_json(memory)},
                      {"decode_plan", Json::parse(plan::explain_json(decode_plan, weights, decode))},
                      {"prefill_plan", Json::parse(plan::explain_json(prefill_plan, weights, prefill))}};
    return put(all.dump(1) + "\n");
  }
  std::string text = fmt::format("model    {}\nbackend  {}\n\n", ready.dir.string(), engine.backend().name());
  text += config_text(config) + tensors_text(groups) + memory_text(memory);
  text += fmt::format("\n{}\n{}", plan::explain(decode_plan, weights, decode, s.all_layers),
                      plan::explain(prefill_plan, weights, prefill, s.all_layers));
  put(text);
}

}  // namespace lily::cli
