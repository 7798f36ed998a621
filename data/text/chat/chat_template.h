// ChatTemplate: how a model's folder writes a conversation as one text.
#pragma once
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/text/chat/jinja.h"
#include "data/text/hub/split_pattern.h"

namespace frugal::data {

// A conversation: {"role": ..., "content": ..., ...} objects, and tools or null.
struct Conversation {
  nlohmann::ordered_json messages, tools;
};

struct ConversationText {
  std::string text;
  std::vector<Span> answers;     // what the role assistant writes, with the ends of its turns
  std::vector<size_t> messages;  // the number of the message of each answer
};

// Names of special tokens and their texts, such as "eos_token" and "</s>".
using SpecialTokens = std::vector<std::pair<std::string, std::string>>;
// What a folder's tokenizer_config.json names; none: there is no such file. Errors: a file that is
// no JSON object.
SpecialTokens special_tokens(const std::string& folder);

// Thread safety: const.
class ChatTemplate {
 public:
  // What a folder of a model has: chat_template.jinja, or "chat_template" in
  // tokenizer_config.json; nothing: it has neither. Errors: those of special_tokens(); a template
  // with a syntax error, with file and line.
  static std::optional<ChatTemplate> of_folder(const std::string& folder);
  // `tokens` are variables of the template. Messages call it `name`. Errors: syntax, with name and
  // line.
  ChatTemplate(const std::string& source, std::string name, SpecialTokens tokens = {});

  // The text before an answer, if add_generation_prompt. Templates that ask for the date
  // (strftime_now) get 26 July 2024, so that the text is the same every day. Errors: what the
  // template raises or does wrong, with name and line.
  std::string render(const Conversation& conversation, bool add_generation_prompt) const;
  // For training. Errors: those of render(); a message of which the template writes nothing, such
  // as one of a role that it does not know; an answer whose place in the text is not clear.
  ConversationText training_text(const Conversation& conversation) const;
  // What stands behind an answer, such as "<|im_end|>", without the space and line ends that
  // follow it. Empty: nothing, or the template does not write a question and an answer.
  std::string answer_end() const;

  const std::string& name() const { return name_; }

 private:
  jinja::Template::Variables variables(const jinja::Value& messages, const jinja::Value& tools,
                                       bool add_generation_prompt) const;
  jinja::Template::Result run(const jinja::Template::Variables& variables,
                              const std::vector<const jinja::Dict*>& watched) const;
  void find_answer_header();
  // Would the text be another one if this message said something else?
  bool writes(const Conversation& conversation, size_t message, const std::string& text) const;

  std::string name_;
  std::shared_ptr<const jinja::Template> template_;
  SpecialTokens tokens_;
  std::string header_;  // what stands before an answer
};

}  // namespace frugal::data
