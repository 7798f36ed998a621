#include "apps/config/keys/keys_of_options.h"

#include <cctype>

#include "apps/config/keys/config_table.h"

namespace frugal::apps {
namespace {

std::string key_of(const std::string& option) {
  if (option.find('.') == std::string::npos) return option;
  for (const Section& section : config_sections())
    for (const Field& field : section.fields)
      if (field.option == option) return section.path(field);
  if (option == "run_folder.path") return "--out";
  if (option == "run_folder.resume") return "--resume";
  return option == "run_folder.overwrite" ? "--overwrite" : option;
}

}  // namespace

std::string with_keys(const std::string& message) {
  const auto is_of_name = [](char c) { return std::islower(c) != 0 || c == '_' || c == '.'; };
  std::string out;
  for (size_t at = 0; at < message.size();) {
    size_t end = at;
    while (end < message.size() && is_of_name(message[end])) ++end;
    // A name is a whole word, and a dot behind it ends a sentence.
    const bool whole = at == 0 || std::isspace(message[at - 1]) != 0;
    size_t name_end = end;
    while (name_end > at && message[name_end - 1] == '.') --name_end;
    const std::string name = message.substr(at, name_end - at);
    const std::string key = whole ? key_of(name) : name;
    out += key;
    // "--out FOLDER" is how a user gives the folder.
    if (key == "--out" && message.substr(name_end, 2) == ": ") ++name_end, ++end;
    out += message.substr(name_end, end - name_end);
    if (end < message.size()) out += message[end++];
    at = end;
  }
  return out;
}

}  // namespace frugal::apps
