#include "data/text/chat/chat_template.h"

#include <algorithm>

#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

using jinja::TemplateError;
using jinja::Value;
using OrderedJson = nlohmann::ordered_json;

std::string file_text(const std::string& path) {
  const std::vector<uint8_t> bytes = read_file("chat_template", path);
  return {bytes.begin(), bytes.end()};
}

// The day that templates get: its parts as strftime() writes them.
std::string date_text(const std::string& format) {
  std::string out;
  for (size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out += format[at];
      continue;
    }
    switch (format[++at]) {
      case 'd':
        out += "26";
        break;
      case 'b':
        out += "Jul";
        break;
      case 'B':
        out += "July";
        break;
      case 'm':
        out += "07";
        break;
      case 'Y':
        out += "2024";
        break;
      case 'y':
        out += "24";
        break;
      case 'A':
        out += "Friday";
        break;
      case 'a':
        out += "Fri";
        break;
      case 'H':
      case 'M':
      case 'S':
        out += "00";
        break;
      case '%':
        out += '%';
        break;
      default:
        throw TemplateError(fmt::format("expected parts of a date, got %{}", format[at]));
    }
  }
  return out;
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// The texts of a message's content: a text, or parts with texts.
std::vector<std::string> contents_of(const OrderedJson& message) {
  std::vector<std::string> all;
  const auto content = message.find("content");
  if (content == message.end()) return all;
  if (content->is_string()) all.push_back(trimmed(content->get<std::string>()));
  if (content->is_array())
    for (const OrderedJson& part : *content)
      if (part.is_object() && part.contains("text") && part["text"].is_string())
        all.push_back(trimmed(part["text"].get<std::string>()));
  std::erase(all, "");
  return all;
}

size_t common_beginning(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < most && a[same] == b[same]) ++same;
  return same;
}

size_t common_end(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t same = 0;
  while (same < most && a[a.size() - 1 - same] == b[b.size() - 1 - same]) ++same;
  return same;
}

// Where an answer begins in its turn: where it differs from `other`, the turn with another answer.
// npos: the answer is not in it.
size_t answer_begin(const std::string& turn, const std::string& other,
                    const std::vector<std::string>& contents) {
  if (other.empty()) return contents.empty() ? 0 : turn.find(contents[0]);
  const size_t same = common_beginning(turn, other);
  if (contents.empty()) return same;
  return turn == other ? std::string::npos : turn.find_first_not_of(" \t\r\n", same);
}

// A character that is not in a text, so that another text which has it shows its place.
char absent_from(const std::string& text) {
  constexpr std::string_view kRare =
      "~^`|@#$%*+=ZQXJqxjzZ0123456789\x01\x02\x03\x04\x05\x06\x07\x08";
  for (const char c : kRare)
    if (text.find(c) == std::string::npos) return c;
  return kRare[0];
}

// A special token: a text, or an object with its content.
std::string token_text(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string())
    return value["content"].get<std::string>();
  return {};
}

constexpr const char* kTokenizerConfig = "tokenizer_config.json";

// An empty object: there is no such file.
OrderedJson tokenizer_config(const std::string& folder) {
  const std::string path = folder + "/" + kTokenizerConfig;
  OrderedJson json = OrderedJson::object();
  if (!is_file(path)) return json;
  try {
    json = parse_json<OrderedJson>(file_text(path));
  } catch (const JsonError& error) {
    throw Error(fmt::format("[chat_template] {}: expected JSON, got: {}", in_quotes(path, 300),
                            error.what()));
  }
  FRUGAL_CHECK(json.is_object(), "[chat_template] {}: expected an object", in_quotes(path, 300));
  return json;
}

}  // namespace

SpecialTokens special_tokens(const std::string& folder) {
  SpecialTokens tokens;
  const OrderedJson config = tokenizer_config(folder);
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token") || value.is_boolean() || value.is_null())
      continue;  // add_bos_token
    const std::string text = token_text(value);
    if (text.empty() && value != "")
      throw Error(fmt::format(
          "[tokenizer] {}, {}: expected a text, or an object with a text as "
          "content, got {}",
          in_quotes(folder + "/" + kTokenizerConfig, 300), key, printable(value.dump(), 80)));
    if (!text.empty()) tokens.emplace_back(key, text);
  }
  return tokens;
}

ChatTemplate::ChatTemplate(const std::string& source, std::string name, SpecialTokens tokens)
    : name_(std::move(name)), tokens_(std::move(tokens)) {
  try {
    template_ = std::make_shared<const jinja::Template>(source);
  } catch (const TemplateError& error) {
    throw Error(fmt::format("[chat_template] {}, {}", in_quotes(name_, 300), error.what()));
  }
  find_answer_header();
}

std::optional<ChatTemplate> ChatTemplate::of_folder(const std::string& folder) {
  const std::string own = folder + "/chat_template.jinja";
  if (is_file(own)) return ChatTemplate(file_text(own), own, special_tokens(folder));
  const OrderedJson config = tokenizer_config(folder);
  const auto found = config.find("chat_template");
  std::string source;
  if (found != config.end() && found->is_string()) source = found->get<std::string>();
  if (found != config.end() && found->is_array())
    for (const OrderedJson& each : *found)
      if (each.is_object() && each.value("name", OrderedJson()) == "default") {
        const OrderedJson text = each.value("template", OrderedJson());
        if (!text.is_string())
          throw Error(fmt::format(
              "[chat_template] {}, chat_template: expected a text as the template named default, "
              "got {}",
              in_quotes(folder + "/" + kTokenizerConfig, 300), printable(text.dump(), 80)));
        source = text.get<std::string>();
      }
  if (source.empty()) return std::nullopt;
  return ChatTemplate(source, folder + "/" + kTokenizerConfig, special_tokens(folder));
}

jinja::Template::Variables ChatTemplate::variables(const Value& messages, const Value& tools,
                                                   bool add_generation_prompt) const {
  jinja::Template::Variables all;
  for (const auto& [key, text] : tokens_) all.emplace_back(key, text);
  all.emplace_back("messages", messages);
  all.emplace_back("tools", tools);
  all.emplace_back("documents", Value());
  all.emplace_back("add_generation_prompt", add_generation_prompt);
  all.emplace_back("strftime_now", Value(jinja::Function([](jinja::Call& call) -> Value {
                     const Value* format = call.find(0, "format");
                     if (format == nullptr) throw TemplateError("expected a format for a date");
                     return date_text(format->text());
                   })));
  return all;
}

jinja::Template::Result ChatTemplate::run(const jinja::Template::Variables& variables,
                                          const std::vector<const jinja::Dict*>& watched) const {
  try {
    return template_->render(variables, watched);
  } catch (const TemplateError& error) {
    throw Error(fmt::format("[chat_template] {}, {}", in_quotes(name_, 300), error.what()));
  }
}

std::string ChatTemplate::render(const Conversation& conversation,
                                 bool add_generation_prompt) const {
  return run(variables(Value::of_json(conversation.messages), Value::of_json(conversation.tools),
                       add_generation_prompt),
             {})
      .text;
}

// Most templates write the same before each answer, and before nothing with add_generation_prompt.
void ChatTemplate::find_answer_header() {
  const Conversation question = {OrderedJson::array({{{"role", "user"}, {"content", "?"}}}),
                                 nullptr};
  try {
    const std::string before = render(question, false), with = render(question, true);
    if (with.starts_with(before)) header_ = with.substr(before.size());
    has_prompt_ = with != before;
  } catch (const Error&) {
    header_.clear();  // the template wants another conversation
  }
}

std::optional<std::string> ChatTemplate::answer_end() const {
  const std::string answer = "answer";
  const Conversation one = {OrderedJson::array({{{"role", "user"}, {"content", "?"}},
                                                {{"role", "assistant"}, {"content", answer}}}),
                            nullptr};
  try {
    const ConversationText made = training_text(one);
    if (made.answers.size() != 1) return std::nullopt;
    const auto [begin, end] = made.answers[0];
    const std::string turn = made.text.substr(begin, end - begin);
    const size_t at = turn.find(answer);
    if (at == std::string::npos) return std::nullopt;
    const std::string behind = turn.substr(at + answer.size());
    const size_t last = behind.find_last_not_of(" \n\r\t");
    return last == std::string::npos ? behind : behind.substr(0, last + 1);
  } catch (const Error&) {
    return std::nullopt;  // the template wants another conversation
  }
}

bool ChatTemplate::writes(const Conversation& conversation, size_t message,
                          const std::string& text) const {
  Conversation other = conversation;
  OrderedJson& content = other.messages[message]["content"];
  const auto change = [](OrderedJson& words) {
    if (words.is_string()) words = words.get<std::string>() + "~";
  };
  change(content);
  if (content.is_array())
    for (OrderedJson& part : content)
      if (part.is_object() && part.contains("text")) change(part["text"]);
  return render(other, false) != text;
}

std::vector<std::string> ChatTemplate::turns_with(const Conversation& conversation,
                                                  char word) const {
  // Some templates want the calls that later messages answer.
  for (const bool with_calls : {false, true}) {
    Conversation other = conversation;
    for (OrderedJson& message : other.messages) {
      if (message.value("role", "") != "assistant") continue;
      const std::string text(1, word);
      OrderedJson content = text;
      if (const auto own = message.find("content"); own != message.end() && own->is_array())
        content = OrderedJson::array({{{"type", "text"}, {"text", text}}});
      message["content"] = std::move(content);
      if (with_calls) continue;
      for (const char* key : {"reasoning_content", "reasoning", "thinking", "tool_calls"})
        message.erase(key);
    }
    const Value messages = Value::of_json(other.messages);
    std::vector<const jinja::Dict*> watched;
    for (const Value& message : *messages.list()) watched.push_back(message.dict());
    try {
      const jinja::Template::Result result =
          run(variables(messages, Value::of_json(other.tools), false), watched);
      std::vector<std::string> turns;
      for (const auto& written : result.written) {
        if (written.size() != 1) {
          turns.emplace_back();
          continue;
        }
        const auto [begin, end] = written[0];
        turns.push_back(result.text.substr(begin, end - begin));
      }
      return turns;
    } catch (const Error&) {
      continue;
    }
  }
  return {};
}

ConversationText ChatTemplate::training_text(const Conversation& conversation) const {
  const Value messages = Value::of_json(conversation.messages);
  FRUGAL_ASSERT(messages.list() != nullptr);
  std::vector<const jinja::Dict*> watched;
  for (const Value& message : *messages.list()) watched.push_back(message.dict());
  jinja::Template::Result result =
      run(variables(messages, Value::of_json(conversation.tools), false), watched);
  ConversationText made;
  made.text = std::move(result.text);
  const bool marked = template_->has_marks() && result.marks_are_placed;
  std::vector<std::string> others;  // the turns, if answers said something else
  const auto other_turn = [&](size_t i) -> const std::string& {
    if (others.empty()) others = turns_with(conversation, absent_from(made.text));
    if (others.empty()) others.resize(watched.size());
    return others[i];
  };
  for (size_t i = 0; i < watched.size(); ++i) {
    const OrderedJson& message = conversation.messages[i];
    const std::string role = message.value("role", "");
    const std::vector<std::string> contents = contents_of(message);
    if (result.written[i].empty()) {
      // Some templates write the first system message before they walk through the others.
      const bool there = role != "assistant" && (role == "system" || !contents.empty()) &&
                         std::all_of(contents.begin(), contents.end(),
                                     [&](const std::string& content) {
                                       return made.text.find(content) != std::string::npos;
                                     }) &&
                         (contents.empty() || writes(conversation, i, made.text));
      FRUGAL_CHECK(
          there,
          "[chat_template] {}: expected a template that writes each message, but it writes "
          "nothing of message {}, whose role is {}",
          in_quotes(name_, 300), i, in_quotes(role));
      continue;
    }
    if (role != "assistant") continue;
    FRUGAL_CHECK(result.written[i].size() == 1,
                 "[chat_template] {}: expected a template that writes each message once, but it "
                 "writes message {} {} times",
                 in_quotes(name_, 300), i, result.written[i].size());
    const auto [begin, end] = result.written[i][0];
    const std::string turn = made.text.substr(begin, end - begin);
    const bool with_header = !header_.empty() && turn.starts_with(header_);
    if (marked) {
      // What a generation is asked with does not count, not even within a mark.
      const size_t first = with_header ? begin + header_.size() : begin;
      for (const auto& [from, to] : result.marked) {
        const Span span{std::max(from, first), std::min(to, end)};
        if (span.begin >= span.end) continue;
        made.answers.push_back(span);
        made.messages.push_back(i);
      }
      continue;
    }
    size_t header = header_.size();
    if (!with_header) header = answer_begin(turn, other_turn(i), contents);
    FRUGAL_CHECK(header != std::string::npos,
                 "[chat_template] {}: expected a template that writes answers as they are, but "
                 "message {} is not in what it writes",
                 in_quotes(name_, 300), i);
    Span span{begin + header, end};
    // Some templates write what ends the last answer when they have walked through the messages.
    if (i + 1 == watched.size() && end < made.text.size() && !other_turn(i).empty()) {
      const std::string own = turn.substr(header), behind = made.text.substr(end),
                        asked = trimmed(turn.substr(0, header));
      const std::string own_end = own.substr(own.size() - common_end(own, other_turn(i)));
      const bool asks_again = !asked.empty() && behind.find(asked) != std::string::npos;
      if (trimmed(own_end).empty() && !asks_again) span.end = made.text.size();
    }
    made.answers.push_back(span);
    made.messages.push_back(i);
  }
  return made;
}

std::string ChatTemplate::prompt(const Conversation& conversation) const {
  if (has_prompt_) return render(conversation, true);
  Conversation answered = conversation;
  answered.messages.push_back({{"role", "assistant"}, {"content", "answer"}});
  try {
    const ConversationText made = training_text(answered);
    if (!made.messages.empty() && made.messages.back() + 1 == answered.messages.size()) {
      const auto first =
          std::find(made.messages.begin(), made.messages.end(), made.messages.back());
      return made.text.substr(
          0, made.answers[static_cast<size_t>(first - made.messages.begin())].begin);
    }
  } catch (const Error&) {
  }
  return render(conversation, true);  // The template wants another conversation.
}

}  // namespace frugal::data
