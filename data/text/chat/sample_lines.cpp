#include "data/text/chat/sample_lines.h"

#include <vector>

#include "core/error.h"
#include "core/quoted.h"
#include "data/formats/json_strict.h"
#include "data/text/json_lines.h"

namespace frugal::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

}  // namespace

void for_json_objects(const std::string& path, const std::function<void(const OrderedJson&)>& f) {
  for_json_lines(path, [&](int64_t number, std::string_view text) {
    try {
      const auto line = parse_json<OrderedJson>(text);
      if (!line.is_object())
        throw Error(fmt::format("expected a JSON object, got {}", printable(line.dump(), 80)));
      f(line);
    } catch (const JsonError& error) {
      fail_in_line(path, number, error);
    } catch (const Error& error) {
      fail_in_line(path, number, error.what());
    }
  });
}

std::string member_names(const OrderedJson& object) {
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  return names.empty() ? "nothing" : printable(fmt::format("{}", fmt::join(names, ", ")), 300);
}

std::string text_member(const OrderedJson& object, const char* name) {
  const OrderedJson& value = object.at(name);
  if (!value.is_string())
    throw Error(
        fmt::format("expected a text as {}, got {}", in_quotes(name), printable(value.dump(), 80)));
  return value.get<std::string>();
}

const ChatTemplate& template_for(const OrderedJson& messages,
                                 const std::optional<ChatTemplate>& chat) {
  if (!messages.is_array() || messages.empty())
    throw Error(fmt::format("expected a list of messages, got {}", printable(messages.dump(), 80)));
  for (const OrderedJson& message : messages)
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string())
      throw Error(
          fmt::format("expected messages with a role, got {}", printable(message.dump(), 80)));
  if (!chat)
    throw Error(
        "expected a chat template for conversations, but the tokenizer's folder "
        "(data.vocabulary) has neither chat_template.jinja nor a chat_template in "
        "tokenizer_config.json; of a list of templates, the one named default is taken");
  return *chat;
}

}  // namespace frugal::data
