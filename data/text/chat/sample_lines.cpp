#include "data/text/chat/sample_lines.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "data/text/chat/jinja_value.h"
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

std::string text_member(const OrderedJson& object, const char* name, const std::string& place) {
  const OrderedJson& value = object.at(name);
  if (!value.is_string())
    throw Error(fmt::format("expected a text as {}, got {}", in_quotes(place + name),
                            printable(value.dump(), 80)));
  return value.get<std::string>();
}

std::string text_or_nothing(const OrderedJson& object, const char* name) {
  return object.contains(name) && !object.at(name).is_null() ? text_member(object, name)
                                                             : std::string();
}

namespace {

void check_content(const OrderedJson& message, const std::string& place) {
  const OrderedJson content = message.value("content", OrderedJson());
  if (content.is_string()) return;
  const bool calls = message.contains("tool_calls") || message.contains("function_call");
  if (content.is_null() && calls) return;
  if (!message.contains("content") && message.size() > 1)
    return;  // the template says what it reads
  if (!content.is_array())
    throw Error(fmt::format(
        "expected a text as {}, or a list of parts such as {{\"type\": \"text\", \"text\": "
        "\"...\"}}, got {}",
        in_quotes(place + "content"),
        message.contains("content") ? printable(content.dump(), 80) : std::string("none")));
  for (size_t i = 0; i < content.size(); ++i) {
    const OrderedJson& part = content[i];
    const std::string own = fmt::format("{}content[{}]", place, i);
    if (!part.is_object() || !part.contains("type") || !part.at("type").is_string())
      throw Error(
          fmt::format("expected as {} a part such as {{\"type\": \"text\", \"text\": "
                      "\"...\"}}, got {}",
                      in_quotes(own), printable(part.dump(), 80)));
    if (part.at("type") == "text" && (!part.contains("text") || !part.at("text").is_string()))
      throw Error(fmt::format("expected a text as {}, got {}", in_quotes(own + ".text"),
                              printable(part.dump(), 80)));
  }
}

void check_objects(const OrderedJson& list, const std::string& name) {
  const bool objects = list.is_array() && std::all_of(list.begin(), list.end(),
                                                      [](const auto& x) { return x.is_object(); });
  if (!objects)
    throw Error(fmt::format("expected a list of objects as {}, got {}", in_quotes(name),
                            printable(list.dump(), 80)));
}

}  // namespace

void check_messages(const OrderedJson& messages, const std::string& name) {
  if (!messages.is_array() || messages.empty())
    throw Error(fmt::format("expected a list of messages as {}, got {}", in_quotes(name),
                            printable(messages.dump(), 80)));
  for (size_t i = 0; i < messages.size(); ++i) {
    const OrderedJson& message = messages[i];
    const std::string own = fmt::format("{}[{}]", name, i);
    if (!message.is_object() || !message.contains("role"))
      throw Error(fmt::format("expected a message with a role and a content as {}, got {}",
                              in_quotes(own), printable(message.dump(), 80)));
    text_member(message, "role", own + ".");
    check_content(message, own + ".");
    if (const auto calls = message.find("tool_calls"); calls != message.end() && !calls->is_null())
      check_objects(*calls, own + ".tool_calls");
  }
}

OrderedJson with_system(OrderedJson messages, const OrderedJson& line) {
  const std::string system = text_or_nothing(line, "system");
  if (system.empty()) return messages;
  if (!messages.empty() && messages[0].value("role", "") == "system") {
    const OrderedJson own = messages[0].value("content", OrderedJson());
    if (own != system)
      throw Error(
          fmt::format("expected one message of the role system, got {} as \"system\" and {} as "
                      "the first message",
                      in_quotes(printable(system, 80)), printable(own.dump(), 80)));
    return messages;
  }
  messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", system}});
  return messages;
}

OrderedJson messages_of(const OrderedJson& line, const char* name) {
  check_messages(line.at(name), name);
  return with_system(line.at(name), line);
}

OrderedJson tools_of(const OrderedJson& line) {
  OrderedJson tools = line.value("tools", OrderedJson());
  if (!tools.is_null()) check_objects(tools, "tools");
  return tools;
}

const ChatTemplate& template_for(const std::optional<ChatTemplate>& chat) {
  if (!chat)
    throw Error(
        "expected a chat template for conversations, but the tokenizer's folder "
        "(data.vocabulary) has neither chat_template.jinja nor a chat_template in "
        "tokenizer_config.json; of a list of templates, the one named default is taken");
  return *chat;
}

void check_parts_are_read(const OrderedJson& messages, const std::string& text) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto content = messages[i].find("content");
    if (content == messages[i].end() || !content->is_array() || content->empty()) continue;
    if (text.find(jinja::Value::of_json(*content).text()) != std::string::npos)
      throw Error(fmt::format(
          "expected a text as the content of message {}, since the chat template reads no parts, "
          "got {}",
          i, printable(content->dump(), 80)));
  }
}

}  // namespace frugal::data
