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
// A member that is a text. `place` is the object's in its line, for messages: "messages[2].".
// Errors: another type. REQUIRES: there is one.
std::string text_member(const nlohmann::ordered_json& object, const char* name,
                        const std::string& place = "");

// A member that is a text; none or null is no text.
std::string text_or_nothing(const nlohmann::ordered_json& object, const char* name);

// Errors, with the entry of the list `name` that is wrong: no list; an entry without a role; a
// content that is neither a text nor a list of parts, or that is missing where the message calls no
// tool; tool_calls that are no list of objects.
void check_messages(const nlohmann::ordered_json& messages, const std::string& name);
// `messages` with the member "system" of their line in front. Errors: another system message there.
nlohmann::ordered_json with_system(nlohmann::ordered_json messages,
                                   const nlohmann::ordered_json& line);
// The messages of the member `name` of a line, after check_messages() and with_system().
nlohmann::ordered_json messages_of(const nlohmann::ordered_json& line, const char* name);
// The tools of a line, or null. Errors: no list of objects.
nlohmann::ordered_json tools_of(const nlohmann::ordered_json& line);
// The template that writes `messages`. Errors: there is none.
const ChatTemplate& template_for(const std::optional<ChatTemplate>& chat);
// Errors: a content in parts that `text`, which a template has written, shows as a list.
void check_parts_are_read(const nlohmann::ordered_json& messages, const std::string& text);

}  // namespace frugal::data
