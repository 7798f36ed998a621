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
  // What stands before the next answer: render() with add_generation_prompt if the template obeys
  // it, and otherwise what the template writes before an answer in a conversation.
  std::string prompt(const Conversation& conversation) const;
  bool has_prompt() const { return has_prompt_; }  // Does it obey add_generation_prompt?
  // For training. An answer is what the template marks with {% generation %}, or what it writes of
  // the message, and what ends it; what prompt() writes is no part of it. Errors: those of
  // render(); a message of which the template writes nothing, such as one of a role that it does
  // not know; an answer whose place in the text is not clear.
  ConversationText training_text(const Conversation& conversation) const;
  // What stands behind an answer, such as "<|im_end|>", without the space and line ends that
  // follow it. nullopt: the template does not write a question and an answer.
  std::optional<std::string> answer_end() const;

  const std::string& name() const { return name_; }

 private:
  jinja::Template::Variables variables(const jinja::Value& messages, const jinja::Value& tools,
                                       bool add_generation_prompt) const;
  jinja::Template::Result run(const jinja::Template::Variables& variables,
                              const std::vector<const jinja::Dict*>& watched) const;
  void find_answer_header();
  // What the template writes of each message if the answers were the one character `word`, without
  // thoughts and calls. Empty: it wants another conversation.
  std::vector<std::string> turns_with(const Conversation& conversation, char word) const;
  // Would the text be another one if this message said something else?
  bool writes(const Conversation& conversation, size_t message, const std::string& text) const;

  std::string name_;
  std::shared_ptr<const jinja::Template> template_;
  SpecialTokens tokens_;
  std::string header_;      // what add_generation_prompt writes
  bool has_prompt_ = true;  // also where the template wants another conversation than a question
};

}  // namespace frugal::data
