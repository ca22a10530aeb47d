// What types the parameters of the offered tools have, and how a raw value becomes JSON of that type.
#pragma once

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lily {

/// The JSON types a parameter may have. `known` is false when the schema says nothing about it.
struct ParameterType {
  bool known = false;
  bool string = false, integer = false, number = false, boolean = false, null = false, object = false, array = false;
  bool operator==(const ParameterType&) const = default;
};

/// Throws an Error(invalid_argument) "path…: expected …" unless `schema`, the `parameters` of a tool, is null or a JSON
/// Schema of an object. What is checked is the shape of the keywords that hold schemas or name types; null is as good as
/// absent everywhere, since some languages write empty lists so. `unread` hears the path of each type name that is not
/// one of JSON's: it has no effect.
void check_tool_schema(const nlohmann::ordered_json& schema, const std::string& path,
                       const std::function<void(const std::string&)>& unread);

/// The parameters of all offered tools, by name.
class ToolSchemas {
 public:
  ToolSchemas() = default;
  /// `tools` as in a request: {type, function: {name, parameters}} or {name, parameters | input_schema}; anything
  /// else in the list is passed over. `$ref` inside a tool's own schema, anyOf, oneOf, allOf, enum, const and
  /// `nullable` are followed.
  explicit ToolSchemas(const nlohmann::ordered_json& tools);

  bool empty() const { return tools_.empty(); }
  bool has(std::string_view tool) const { return tools_.find(tool) != tools_.end(); }
  /// Unknown when the tool or the parameter is.
  ParameterType parameter(std::string_view tool, std::string_view name) const;

 private:
  struct Tool {
    std::map<std::string, ParameterType, std::less<>> parameters;
    ParameterType others;  // additionalProperties
  };
  std::map<std::string, Tool, std::less<>> tools_;
};

/// A raw value as JSON. A parameter that may be a string is one, whatever it looks like, save for what else the schema
/// allows unmistakably: `null`, objects and lists. Numbers keep their digits; 230.0 is the integer 230. What cannot be
/// made to fit is passed on as a string: a call is never lost for its value. A parameter of unknown type is a string
/// unless it is an object or a list.
std::string argument_json(const ParameterType& type, std::string_view raw);

/// Whether a value that begins with `start` is a string whatever follows, so that it can be sent on at once.
bool is_certainly_string(const ParameterType& type, std::string_view start);

}  // namespace lily
