#include "apps/config/keys/value_schema.h"

#include "apps/config/keys/config_error.h"
#include "models/sequential/sequential.h"
#include "train/planning/bytes.h"

namespace frugal::apps {

using by_name::Range;
using by_name::Value;

namespace {

void add_bounds(Json& schema, const Range& range, bool integral) {
  const auto number = [&](double value) {
    return integral ? Json(static_cast<int64_t>(value)) : Json(value);
  };
  schema[range.opens_least ? "exclusiveMinimum" : "minimum"] = number(range.least);
  schema[range.opens_most ? "exclusiveMaximum" : "maximum"] = number(range.most);
}

}  // namespace

Json schema_of(const Range& range) {
  if (range.is_bytes) {
    Json schema = {{"type", Json::array({"integer", "string"})},
                   {"minimum", 0},
                   {"pattern", kBytesPattern},
                   {"examples", {"500 MB", "2 GiB"}}};
    if (range.may_be_nothing) schema["type"] = {"integer", "null", "string"};
    if (range.most < by_name::range::bytes().most) add_bounds(schema, range, true);
    return schema;
  }
  Json types = Json::array();
  if (range.may_be_flag) types.push_back("boolean");
  if (range.may_be_integer) types.push_back("integer");
  if (range.may_be_number) types.push_back("number");
  if (range.may_be_text) types.push_back("string");
  const bool numbers = range.may_be_integers || range.may_be_numbers;
  const bool listed = numbers || range.may_be_texts || range.may_be_layers;
  if (listed) types.push_back("array");
  if (range.may_be_nothing) types.push_back("null");
  Json schema = {{"type", types.size() == 1 ? types[0] : types}};
  if (range.choices != nullptr) schema["enum"] = by_name::choices_of(range);
  if (range.may_be_integer || range.may_be_number) add_bounds(schema, range, range.may_be_integer);
  if (range.step > 1) schema["multipleOf"] = range.step;
  if (numbers || range.may_be_texts) schema["items"] = schema_of(by_name::entry_of(range));
  if (listed) {
    schema["minItems"] = range.fewest;
    schema["maxItems"] = range.longest;
  }
  return schema;
}

Json layers_schema() {
  Json layers = Json::object();
  for (const models::LayerKind& kind : models::layer_kinds()) {
    Json object = {{"type", "object"}, {"additionalProperties", false}};
    object["properties"] = Json::object();
    Json required = Json::array();
    for (const models::LayerKey& key : kind.keys) {
      Json each = schema_of(key.range);
      if (key.range.may_be_layers)
        each["items"] = {{"$ref", "#/properties/model/properties/modules/items"}};
      if (key.also != nullptr) each = {{"anyOf", {each, {{"const", key.also}}}}};
      if (key.required)
        required.push_back(key.name);
      else
        each["default"] = json_of(key.usual);
      object["properties"][key.name] = each;
    }
    if (!required.empty()) object["required"] = required;
    Json any = Json::array({object, {{"type", "null"}}});
    if (!kind.keys.empty()) any.push_back(object["properties"][kind.keys[0].name]);
    layers[kind.name] = {{"anyOf", any}};
  }
  Json schema = {{"type", "array"}};
  schema["items"] = {{"type", {"object", "string"}}, {"minProperties", 1}, {"maxProperties", 1}};
  schema["items"]["additionalProperties"] = false;
  schema["items"]["properties"] = layers;
  schema["minItems"] = 0;
  schema["maxItems"] = models::kMostLayers;
  return schema;
}

Json json_of(const Value& value) {
  if (value.is<bool>()) return value.flag();
  if (value.is<int64_t>()) return value.integer();
  if (value.is<double>()) return value.number();
  if (value.is<std::string>()) return value.text();
  if (value.is<Value::List>()) {
    Json list = Json::array();
    for (const Value& each : value.list()) list.push_back(json_of(each));
    return list;
  }
  if (!value.is<Value::Object>()) return nullptr;
  Json object = Json::object();
  for (const auto& [key, each] : value.object()) object[key] = json_of(each);
  return object;
}

Value value_of(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX) return json.get<double>();
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    Value::List list;
    for (const Json& each : json) list.push_back(value_of(each));
    return list;
  }
  if (!json.is_object()) return {};
  Value::Object object;
  for (const auto& [key, each] : json.items()) object.emplace_back(key, value_of(each));
  return object;
}

Value value_of(const Range& range, const Json& json, const std::string& path) {
  if (json.is_array() && !range.may_be_layers) {
    Value::List list;
    const Range entry = by_name::entry_of(range);
    for (const Json& each : json) list.push_back(value_of(entry, each, path));
    return list;
  }
  if (range.is_bytes && json.is_string()) {
    const Value bytes = parse_bytes(json.get<std::string>(), path);
    check_range(range, bytes, path);
    return bytes;
  }
  const Value value = value_of(json);
  if (!value.is_number()) return value;
  return range.may_be_integer ? Value(value.integer()) : Value(value.number());
}

}  // namespace frugal::apps
