// What the readers of JSON lines for language models share. Internal to data/text.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/text/chat/chat_template.h"

namespace frugal::data {

// Calls f for the object in each line that is not empty. Errors, with file and line: a line that is
// not a JSON object; those of f.
void for_json_objects(const std::string& path,
                      const std::function<void(const nlohmann::ordered_json&)>& f);

// The names of an object's members, for a message; "nothing": it has none.
std::string member_names(const nlohmann::ordered_json& object);
// A member that is a text. Errors: another type. REQUIRES: there is one.
std::string text_member(const nlohmann::ordered_json& object, const char* name);

// The template that writes `messages`. Errors: no list of messages with a role each; no template.
const ChatTemplate& template_for(const nlohmann::ordered_json& messages,
                                 const std::optional<ChatTemplate>& chat);

}  // namespace frugal::data
