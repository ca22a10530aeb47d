#include "server/request.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "base/log.h"
#include "server/api_error.h"
#include "text/json_text.h"
#include "text/tool_calls.h"

namespace lily::server {
namespace {

using Json = nlohmann::ordered_json;

std::string found(const Json& v) { return ", found " + std::string(v.is_binary() ? "a number beyond 64 bits" : v.type_name()); }

bool read_bool(const Json& v, const std::string& path) {
  if (!v.is_boolean()) refuse_field(path, "expected true or false" + found(v));
  return v.get<bool>();
}

double read_number(const Json& v, const std::string& path) {
  if (!v.is_number()) refuse_field(path, "expected a number" + found(v));
  const double x = v.get<double>();
  if (!std::isfinite(x)) refuse_field(path, "expected a finite number");
  return x;
}

std::int64_t read_integer(const Json& v, const std::string& path, std::int64_t lo, std::int64_t hi) {
  const std::string expected = "expected a whole number from " + std::to_string(lo) + " to " + std::to_string(hi);
  const bool whole = v.is_number_integer() || (v.is_number_float() && v.get<double>() == std::floor(v.get<double>()) && std::abs(v.get<double>()) < 9e15);
  if (!whole) refuse_field(path, expected + found(v));
  if (v.is_number_unsigned() && v.get<std::uint64_t>() > std::uint64_t(INT64_MAX)) refuse_field(path, expected);
  const std::int64_t x = v.is_number_float() ? std::int64_t(v.get<double>()) : v.get<std::int64_t>();
  if (x < lo || x > hi) refuse_field(path, expected + ", found " + std::to_string(x));
  return x;
}

std::string read_string(const Json& v, const std::string& path) {
  if (!v.is_string()) refuse_field(path, "expected a string" + found(v));
  return v.get<std::string>();
}

void read_stop(ApiRequest& r, const Json& v) {
  const Json list = v.is_string() ? Json::array({v}) : v;
  if (!list.is_array()) refuse_field("stop", "expected a string or a list of strings" + found(v));
  if (list.size() > 16) refuse_field("stop", "expected at most 16 strings, found " + std::to_string(list.size()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string path = "stop[" + std::to_string(i) + "]";
    r.stop.push_back(read_string(list[i], path));
    if (r.stop.back().empty()) refuse_field(path, "an empty string would stop everything");
    if (r.stop.back().size() > 1024) refuse_field(path, "longer than 1024 bytes");
  }
}

void read_logit_bias(ApiRequest& r, const Json& v) {
  if (!v.is_object()) refuse_field("logit_bias", "expected an object of token ids and numbers" + found(v));
  for (const auto& [key, value] : v.items()) {
    std::int32_t id = -1;
    const auto [end, fault] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (fault != std::errc() || end != key.data() + key.size() || id < 0 || key != std::to_string(id))
      refuse_field("logit_bias", "'" + shortened(key, 40) + "' is no token id");
    const double bias = read_number(value, "logit_bias." + key);
    if (bias < -100 || bias > 100) refuse_field("logit_bias." + key, "expected -100 to 100");
    r.logit_bias.emplace_back(std::int32_t(id), float(bias));
  }
}

/// Members of the object `v` beyond `known` have no effect; null is as good as absent.
void ignore_others(ApiRequest& r, const std::string& path, const Json& v, std::initializer_list<std::string_view> known) {
  for (const std::string& key : members_beyond(v, known)) r.ignored.push_back(path + "." + key.substr(0, 64));
}

void read_response_format(ApiRequest& r, const Json& v) {
  const Json& type = member(v, "type");
  if (type == "text") return ignore_others(r, "response_format", v, {"type"});
  refuse_field("response_format", type == "json_object" || type == "json_schema"
                                      ? "'" + type.get<std::string>() + "' is not supported by this version; only 'text' is"
                                      : std::string("expected {\"type\": \"text\"}"));
}

void read_stream_options(ApiRequest& r, const Json& v) {
  if (!v.is_object()) refuse_field("stream_options", "expected an object" + found(v));
  const Json& usage = member(v, "include_usage");
  if (!usage.is_null()) r.include_usage = read_bool(usage, "stream_options.include_usage");
  ignore_others(r, "stream_options", v, {"include_usage"});
}

void read_modalities(const Json& v) {
  if (!v.is_array() || v.size() != 1 || v[0] != "text") refuse_field("modalities", "this model is text-only: expected [\"text\"]");
}

using Reader = std::function<void(ApiRequest&, const Json&)>;

Reader not_supported(std::string field, std::string why) {
  return [field = std::move(field), why = std::move(why)](ApiRequest&, const Json& v) {
    if (v == false || (v.is_array() && v.empty())) return;
    refuse_field(field, why);
  };
}
Reader without_effect(std::string field) {
  return [field = std::move(field)](ApiRequest& r, const Json&) { r.ignored.push_back(field); };
}

/// What both routes have in common.
std::map<std::string, Reader> common_fields() {
  std::map<std::string, Reader> t;
  t["model"] = [](ApiRequest& r, const Json& v) { r.model = read_string(v, "model"); };
  t["stream"] = [](ApiRequest& r, const Json& v) { r.stream = read_bool(v, "stream"); };
  t["stream_options"] = read_stream_options;
  for (const char* name : {"max_tokens", "max_completion_tokens"}) {
    t[name] = [name](ApiRequest& r, const Json& v) {
      const std::int64_t n = read_integer(v, name, 1, INT32_MAX);
      r.max_tokens = r.max_tokens ? std::min(*r.max_tokens, n) : n;
    };
  }
  t["temperature"] = [](ApiRequest& r, const Json& v) { r.sampling.temperature = read_number(v, "temperature"); };
  t["top_p"] = [](ApiRequest& r, const Json& v) { r.sampling.top_p = read_number(v, "top_p"); };
  t["min_p"] = [](ApiRequest& r, const Json& v) { r.sampling.min_p = read_number(v, "min_p"); };
  t["top_k"] = [](ApiRequest& r, const Json& v) {
    const std::int64_t k = read_integer(v, "top_k", -1, INT32_MAX);  // -1 means all with some clients
    r.sampling.top_k = k < 0 ? 0 : int(k);
  };
  t["presence_penalty"] = [](ApiRequest& r, const Json& v) { r.sampling.presence_penalty = read_number(v, "presence_penalty"); };
  t["frequency_penalty"] = [](ApiRequest& r, const Json& v) { r.sampling.frequency_penalty = read_number(v, "frequency_penalty"); };
  t["repetition_penalty"] = [](ApiRequest& r, const Json& v) { r.sampling.repetition_penalty = read_number(v, "repetition_penalty"); };
  t["seed"] = [](ApiRequest& r, const Json& v) { r.sampling.seed = std::uint64_t(read_integer(v, "seed", INT64_MIN, INT64_MAX)); };
  t["logit_bias"] = read_logit_bias;
  t["stop"] = read_stop;
  t["n"] = [](ApiRequest&, const Json& v) {
    if (read_integer(v, "n", 1, INT32_MAX) != 1) refuse_field("n", "only 1 answer a request is supported");
  };
  for (const char* name : {"user", "metadata", "store", "service_tier", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"})
    t[name] = without_effect(name);
  return t;
}

std::map<std::string, Reader> chat_fields() {
  std::map<std::string, Reader> t = common_fields();
  t["logprobs"] = [](ApiRequest& r, const Json& v) {
    if (read_bool(v, "logprobs") && !r.logprobs) r.logprobs = 0;
  };
  t["top_logprobs"] = [](ApiRequest& r, const Json& v) { r.logprobs = int(read_integer(v, "top_logprobs", 0, 20)); };
  t["tool_choice"] = [](ApiRequest& r, const Json& v) {
    const Json& function = member(v, "function");
    const Json& name = member(function.is_object() ? function : v, "name");
    if (v == "auto") {
      r.tool_choice = ToolChoice::automatic;
    } else if (v == "none") {
      r.tool_choice = ToolChoice::none;
    } else if (v == "required" || v == "any") {
      r.tool_choice = ToolChoice::required;
    } else if (member(v, "type") == "function" && name.is_string()) {
      r.tool_choice = ToolChoice::named;
      r.tool_name = name.get<std::string>();
      ignore_others(r, "tool_choice", v, {"type", function.is_object() ? "function" : "name"});
      ignore_others(r, "tool_choice.function", function, {"name"});
    } else {
      refuse_field("tool_choice", "expected auto, none, required or {\"type\": \"function\", \"function\": {\"name\": …}}");
    }
  };
  t["parallel_tool_calls"] = [](ApiRequest& r, const Json& v) { r.parallel_tool_calls = read_bool(v, "parallel_tool_calls"); };
  t["thinking_budget"] = [](ApiRequest& r, const Json& v) { r.thinking_budget = read_integer(v, "thinking_budget", 0, INT32_MAX); };
  t["response_format"] = read_response_format;
  t["modalities"] = [](ApiRequest&, const Json& v) { read_modalities(v); };
  t["audio"] = not_supported("audio", "this model is text-only");
  t["web_search_options"] = not_supported("web_search_options", "this server does not search");
  t["functions"] = not_supported("functions", "the old form is not supported: send 'tools'");
  t["function_call"] = not_supported("function_call", "the old form is not supported: send 'tool_choice'");
  for (const char* name : {"guided_json", "guided_regex", "guided_choice", "guided_grammar", "grammar", "structured_outputs", "json_schema"})
    t[name] = not_supported(name, "constrained decoding is not supported by this version");
  return t;
}

std::map<std::string, Reader> completion_fields() {
  std::map<std::string, Reader> t = common_fields();
  t["prompt"] = [](ApiRequest& r, const Json& v) {
    const bool list = v.is_array() && !v.empty();
    const Json& one = list && v.size() == 1 && !v[0].is_number() ? v[0] : v;
    if (one.is_string()) {
      r.prompt = one.get<std::string>();
    } else if (one.is_array() && !one.empty() && std::all_of(one.begin(), one.end(), [](const Json& id) { return id.is_number_integer(); })) {
      for (const Json& id : one) r.prompt_ids.push_back(std::int32_t(read_integer(id, "prompt", 0, INT32_MAX)));
    } else {
      refuse_field("prompt", list && v.size() > 1 ? "only one prompt a request is supported" : "expected a string or a list of token ids" + found(v));
    }
  };
  t["echo"] = [](ApiRequest& r, const Json& v) { r.echo = read_bool(v, "echo"); };
  t["logprobs"] = [](ApiRequest& r, const Json& v) {
    if (v.is_boolean() && v == false) return;
    r.logprobs = v.is_boolean() ? 0 : int(read_integer(v, "logprobs", 0, 20));
  };
  t["best_of"] = [](ApiRequest&, const Json& v) {
    if (read_integer(v, "best_of", 1, INT32_MAX) != 1) refuse_field("best_of", "only 1 answer a request is supported");
  };
  t["suffix"] = [](ApiRequest&, const Json& v) {
    if (v != "") refuse_field("suffix", "this model cannot fill in the middle");
  };
  t["response_format"] = read_response_format;
  return t;
}

/// The fields of the table; null is as good as absent.
void read_fields(ApiRequest& r, const std::map<std::string, Reader>& table) {
  for (const auto& [name, value] : r.body.items())
    if (const auto reader = table.find(name); reader != table.end() && !value.is_null()) reader->second(r, value);
}

/// Two spellings more of the budget lie in objects of which parse_chat reads the switch. What else is in them has no effect.
void read_budget(ApiRequest& r, const Json& body, const std::string& prefix) {
  for (const auto& [object, budget] : {std::pair{"reasoning", "max_tokens"}, std::pair{"thinking", "budget_tokens"}}) {
    const Json& options = member(body, object);
    const Json& tokens = member(options, budget);
    if (!tokens.is_null()) {
      const std::int64_t n = read_integer(tokens, prefix + object + "." + budget, 0, INT32_MAX);
      if (!r.thinking_budget) r.thinking_budget = n;
    }
    ignore_others(r, prefix + object, options, {"effort", "enabled", "type", budget});
  }
}

void read_tool_names(ApiRequest& r) {
  const Json& tools = member(r.body, "tools");
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const std::string path = "tools[" + std::to_string(i) + "]";
    const Json& function = member(tools[i], "function");
    const Json& type = member(tools[i], "type");
    if (!type.is_null() && type != "function") refuse_field(path + ".type", "only tools of type 'function' are supported");
    r.tool_names.push_back(member(function.is_object() ? function : tools[i], "name").get<std::string>());
  }
  const bool named = r.tool_choice == ToolChoice::named;
  const bool forced = named || r.tool_choice == ToolChoice::required;
  if (forced && r.tool_names.empty()) refuse_field("tool_choice", "a call is required, and no tools are offered");
  if (named && std::find(r.tool_names.begin(), r.tool_names.end(), r.tool_name) == r.tool_names.end())
    refuse_field("tool_choice", "the tool '" + r.tool_name.substr(0, 64) + "' is not among those offered");
  for (std::size_t i = 0; forced && i < r.tool_names.size(); ++i)
    if (!is_callable_name(r.tool_names[i]) && (!named || r.tool_names[i] == r.tool_name))
      refuse_field("tools[" + std::to_string(i) + (member(r.body["tools"][i], "function").is_object() ? "].function.name" : "].name"),
                   "a call that is required cannot have this name: expected 1 to 256 bytes without '<', '>', line breaks and space at its ends");
}

/// The number of alternatives alone asks for log probabilities; together with an explicit false it asks for two things.
void settle_logprobs(ApiRequest& r) {
  if (member(r.body, "logprobs") != false || !r.logprobs) return;
  if (*r.logprobs > 0) refuse_field("top_logprobs", "expected 'logprobs' to be true, found false");
  r.logprobs.reset();
}

}  // namespace

ApiRequest parse_chat_request(std::string_view body) {
  static const std::map<std::string, Reader> table = chat_fields();
  ApiRequest r;
  r.body = parse_json(body);
  r.input = parse_chat(r.body);
  r.ignored = r.input.ignored;
  for (const std::string& name : r.input.unread)
    if (!table.contains(name)) r.ignored.push_back(name);
  read_fields(r, table);
  settle_logprobs(r);
  read_budget(r, r.body, "");
  read_budget(r, member(r.body, "extra_body"), "extra_body.");
  read_tool_names(r);
  return r;
}

ApiRequest parse_completion_request(std::string_view body) {
  static const std::map<std::string, Reader> table = completion_fields();
  ApiRequest r;
  r.chat = false;
  r.body = parse_json(body);
  if (!r.body.is_object()) refuse_field("body", "expected an object with 'prompt'" + found(r.body));
  for (const auto& [key, value] : r.body.items())
    if (!value.is_null() && !table.contains(key)) r.ignored.push_back(key.substr(0, 64));
  read_fields(r, table);
  if (r.prompt.empty() && r.prompt_ids.empty()) refuse_field("prompt", "expected a text or token ids, found nothing");
  return r;
}

}  // namespace lily::server
