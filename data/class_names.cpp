#include "data/class_names.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

using Json = nlohmann::json;

std::string text_of(const std::string& path, const Json& json) {
  FRUGAL_CHECK(json.is_string() && !json.get_ref<const std::string&>().empty(),
               "[classes] {}: expected the name of a class, got {}", in_quotes(path),
               printable(json.dump(), 80));
  return json.get<std::string>();
}

void add(const std::string& path, const Json& json, ClassNames& classes) {
  if (json.is_array()) {
    FRUGAL_CHECK(json.size() == 2, "[classes] {}: expected an id and a name, got {}",
                 in_quotes(path), printable(json.dump(), 80));
    classes.ids.push_back(text_of(path, json[0]));
    classes.names.push_back(text_of(path, json[1]));
  } else {
    classes.ids.push_back(text_of(path, json));
    classes.names.push_back(classes.ids.back());
  }
}

ClassNames from_json(const std::string& path, const std::string& text) {
  Json json;
  try {
    json = parse_json<Json>(text);
  } catch (const JsonError& error) {
    throw Error(fmt::format("[classes] {}: {}", in_quotes(path), error.what()));
  }
  ClassNames classes;
  if (json.is_array()) {
    for (const Json& each : json) add(path, each, classes);
    return classes;
  }
  for (size_t i = 0; i < json.size(); ++i) {
    const auto found = json.find(std::to_string(i));
    FRUGAL_CHECK(found != json.end(),
                 "[classes] {}: expected the classes \"0\" to \"{}\", got no \"{}\"",
                 in_quotes(path), json.size() - 1, i);
    add(path, *found, classes);
  }
  return classes;
}

// Whether a line begins as ImageNet's: n and eight digits, then a blank.
bool has_synset(const std::string& line) {
  constexpr size_t kLength = 9;
  return line.size() > kLength + 1 && line[0] == 'n' && line[kLength] == ' ' &&
         std::all_of(line.begin() + 1, line.begin() + kLength,
                     [](char c) { return c >= '0' && c <= '9'; });
}

ClassNames from_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) lines.push_back(line);
  }
  const bool synsets = std::all_of(lines.begin(), lines.end(), has_synset);
  ClassNames classes;
  for (const std::string& line : lines) {
    const size_t blank = synsets ? line.find(' ') : std::string::npos;
    classes.ids.push_back(line.substr(0, blank));
    classes.names.push_back(synsets ? line.substr(blank + 1) : line);
  }
  return classes;
}

}  // namespace

ClassNames read_class_names(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("classes", path);
  std::string text(bytes.begin(), bytes.end());
  if (text.starts_with("\xef\xbb\xbf")) text.erase(0, 3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && (text[first] == '{' || text[first] == '[');
  ClassNames classes = json ? from_json(path, text) : from_lines(text);
  FRUGAL_CHECK(!classes.ids.empty(), "[classes] {}: expected names of classes, got none",
               in_quotes(path));
  std::set<std::string> seen;
  for (const std::string& id : classes.ids)
    FRUGAL_CHECK(seen.insert(id).second, "[classes] {}: expected each class once, got {} twice",
                 in_quotes(path), in_quotes(id));
  return classes;
}

ClassNames order_of_classes(const ClassNames& known, const std::vector<std::string>& found,
                            const std::string& path) {
  const auto missing_in = [&](const std::vector<std::string>& all) {
    const std::set<std::string> have(all.begin(), all.end());
    return std::find_if(found.begin(), found.end(),
                        [&](const std::string& name) { return !have.contains(name); });
  };
  const auto unknown = missing_in(known.ids);
  if (unknown == found.end()) return known;
  if (missing_in(known.names) == found.end()) return {known.names, known.names};
  ClassNames numbered{{}, known.names};  // labels that are the outputs' numbers
  for (size_t i = 0; i < known.names.size(); ++i) numbered.ids.push_back(std::to_string(i));
  if (missing_in(numbered.ids) == found.end()) return numbered;
  throw Error(
      fmt::format("[classes] {}: expected the classes of the data among its {}, got {} in "
                  "the data",
                  in_quotes(path), known.ids.size(), in_quotes(*unknown)));
}

}  // namespace frugal::data
