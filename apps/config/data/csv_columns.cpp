#include "apps/config/data/csv_columns.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

using data::CsvEncoding;

CsvEncoding::Number number_from(const Json& json) {
  const CsvEncoding::Number found = {json.at("mean").get<double>(), json.at("std").get<double>()};
  FRUGAL_CHECK(std::isfinite(found.mean) && std::isfinite(found.std) && found.std > 0,
               "expected a finite mean and a std above 0, got {}", printable(json.dump(), 80));
  return found;
}

void put(Json& json, const CsvEncoding::Number& number) {
  json["mean"] = number.mean;
  json["std"] = number.std;
}

CsvEncoding::Input input_from(const Json& json) {
  CsvEncoding::Input input;
  input.name = json.at("name").get<std::string>();
  input.is_number = !json.contains("categories");
  if (input.is_number) {
    input.number = number_from(json);
    return input;
  }
  input.categories = json.at("categories").get<std::vector<std::string>>();
  const auto& names = input.categories;
  FRUGAL_CHECK(
      std::adjacent_find(names.begin(), names.end(), std::greater_equal<>()) == names.end(),
      "expected sorted categories of column {}", in_quotes(input.name));
  return input;
}

}  // namespace

Json columns_json(const CsvEncoding& encoding) {
  Json columns = Json::array();
  for (const CsvEncoding::Input& input : encoding.inputs) {
    Json one = {{"name", input.name}};
    if (input.is_number)
      put(one, input.number);
    else
      one["categories"] = input.categories;
    columns.push_back(one);
  }
  Json target = {{"name", encoding.target}};
  if (encoding.classes.empty())
    put(target, encoding.value);
  else
    target["classes"] = encoding.classes;
  return {{"columns", columns},
          {"one_hot", encoding.one_hot},
          {"standardized", encoding.standardize},
          {"fills_missing", encoding.fill_missing},
          {"target", target}};
}

CsvEncoding columns_from(const Json& json) {
  CsvEncoding encoding;
  encoding.one_hot = json.at("one_hot").get<bool>();
  encoding.standardize = json.at("standardized").get<bool>();
  encoding.fill_missing = json.at("fills_missing").get<bool>();
  std::set<std::string> names;
  for (const Json& column : json.at("columns")) {
    encoding.inputs.push_back(input_from(column));
    const std::string& name = encoding.inputs.back().name;
    FRUGAL_CHECK(names.insert(name).second, "expected one entry of column {}, got two",
                 in_quotes(name));
  }
  const Json& target = json.at("target");
  encoding.target = target.at("name").get<std::string>();
  if (target.contains("classes"))
    encoding.classes = target.at("classes").get<std::vector<std::string>>();
  else
    encoding.value = number_from(target);
  return encoding;
}

}  // namespace frugal::apps
