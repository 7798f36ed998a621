#include "data/text/chat/choice_questions.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/text/chat/sample_lines.h"

namespace frugal::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

bool is_question(const OrderedJson& line) {
  return line.contains("choices") ||
         (line.contains("prompt") && line.contains("answer") && !line.contains("completion"));
}

void check_some(const std::string& path, bool some) {
  FRUGAL_CHECK(some, "[jsonl] {}: expected lines with a JSON object each, got none",
               in_quotes(path));
}

std::vector<std::string> choices_of(const OrderedJson& line) {
  if (!line.contains("choices"))
    throw Error(fmt::format("expected choices, a list of texts, got {}", member_names(line)));
  const OrderedJson& list = line.at("choices");
  if (!list.is_array() || list.size() < 2 || list.size() > kMostChoices)
    throw Error(fmt::format("expected a list of 2 to {} texts as \"choices\", got {}", kMostChoices,
                            printable(list.dump(), 80)));
  std::vector<std::string> choices;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string() || list[i].get_ref<const std::string&>().empty())
      throw Error(
          fmt::format("expected choices that are texts of at least one character, got {} as "
                      "\"choices[{}]\"",
                      printable(list[i].dump(), 80), i));
    choices.push_back(list[i].get<std::string>());
  }
  return choices;
}

std::string without_spaces_around(const std::string& text) {
  constexpr const char* kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// The choices that a text may name: by what they say, spaces around them aside, and by a letter.
std::vector<int64_t> named_by(const std::string& text, const std::vector<std::string>& choices) {
  std::vector<int64_t> all;
  const std::string plain = without_spaces_around(text);
  const auto count = static_cast<int64_t>(choices.size());
  for (int64_t i = 0; i < count; ++i) {
    const bool letter = i < 26 && plain.size() == 1 && plain[0] == static_cast<char>('A' + i);
    if (letter || plain == without_spaces_around(choices[static_cast<size_t>(i)])) all.push_back(i);
  }
  return all;
}

int64_t answer_of(const OrderedJson& line, const std::vector<std::string>& choices) {
  if (!line.contains("answer"))
    throw Error(fmt::format("expected an answer beside choices, got {}", member_names(line)));
  const OrderedJson& value = line.at("answer");
  const auto count = static_cast<int64_t>(choices.size());
  if (value.is_number_unsigned() && value.get<uint64_t>() < choices.size())
    return value.get<int64_t>();
  const std::vector<int64_t> named =
      value.is_string() ? named_by(value.get<std::string>(), choices) : std::vector<int64_t>{};
  if (named.size() > 1)
    throw Error(fmt::format(
        "expected an answer that names one choice, got {}, which may be those of the numbers {} "
        "and {}; a number from 0 is clear",
        printable(value.dump(), 80), named[0], named[1]));
  if (named.empty())
    throw Error(
        fmt::format("expected as \"answer\" a number from 0 to {}, a letter from \"A\" to "
                    "\"{}\", or the text of a choice, got {}",
                    count - 1, static_cast<char>('A' + std::min<int64_t>(count, 26) - 1),
                    printable(value.dump(), 80)));
  return named[0];
}

// What stands before a choice.
struct Prompt {
  std::string text;
  bool whole = false;  // special tokens are written already
};

Prompt prompt_of(const OrderedJson& line, const SampleEncoder& encoder) {
  const bool chat = line.contains("messages");
  if (chat == line.contains("prompt"))
    throw Error(fmt::format("expected a prompt or messages beside choices, got {}",
                            chat ? "both" : member_names(line)));
  if (!chat) return {text_member(line, "prompt")};
  const OrderedJson messages = messages_of(line, "messages");
  const ChatTemplate& chat_template = template_for(encoder.chat);
  if (const OrderedJson& role = messages.back().at("role"); role != "user")
    throw Error(fmt::format("expected messages that end with one of the role user, got {}",
                            printable(role.dump(), 80)));
  Prompt written = {chat_template.prompt({messages, tools_of(line)}), true};
  check_parts_are_read(messages, written.text);
  return written;
}

Sequence choice_behind(const Prompt& prompt, const std::string& choice, const TokenIds& before,
                       const Tokenizer& tokenizer) {
  std::vector<int64_t> counts;
  Sequence made;
  made.ids = tokenizer.encode_counting(prompt.text + choice, {prompt.text.size()}, counts);
  made.ids.insert(made.ids.begin(), before.begin(), before.end());
  made.second = static_cast<int32_t>(made.ids.size());
  const auto begin = static_cast<int32_t>(static_cast<int64_t>(before.size()) + counts[0]);
  if (begin == made.second)
    throw Error(fmt::format("expected choices of at least one token, got {}", in_quotes(choice)));
  if (begin == 0)
    throw Error(fmt::format(
        "expected a prompt with a token of its own before the choice {}, got none: the first token "
        "of a text is not guessed",
        in_quotes(choice)));
  made.counted = {{begin, made.second}};
  return made;
}

// Takes ids behind the first `before` of each sample, so that the longest has at most max_length
// inputs. All choices of a question keep one prompt.
bool cut_prompts(std::vector<Sequence>& samples, int64_t before, const TextSampleOptions& options) {
  int64_t longest = 0;
  for (const Sequence& sample : samples)
    longest = std::max(longest, static_cast<int64_t>(sample.ids.size()) - 1);
  const int64_t surplus = longest - options.max_length;
  if (surplus <= 0) return false;
  if (!options.truncate)
    throw Error(fmt::format(
        "expected a prompt and a choice of at most {} inputs (data.max_length), got {}; with "
        "data.name=conversations, data.truncate cuts the beginnings of such prompts",
        options.max_length, longest));
  for (Sequence& sample : samples) {
    Sequence::Range& counted = sample.counted[0];
    if (counted.begin - surplus <= before)
      throw Error(fmt::format(
          "expected choices that leave room for their prompt in {} inputs (data.max_length), got a "
          "prompt of {} tokens and {} inputs",
          options.max_length, counted.begin, longest));
    const auto from = sample.ids.begin() + before;
    sample.ids.erase(from, from + surplus);
    sample.second = static_cast<int32_t>(sample.ids.size());
    counted = {static_cast<int32_t>(counted.begin - surplus), sample.second};
  }
  return true;
}

}  // namespace

bool are_questions(const std::string& path) {
  std::optional<bool> questions;
  for_json_objects(path, [&](const OrderedJson& line) {
    const bool one = is_question(line);
    if (questions.value_or(one) != one)
      throw Error(fmt::format(
          "expected {} as in the lines before, got {}; questions and texts are "
          "evaluated from files of their own",
          one ? "a text" : "a question, with choices and an answer,", member_names(line)));
    questions = one;
  });
  check_some(path, questions.has_value());
  return *questions;
}

ChoiceQuestions read_choice_questions(const std::string& path, const SampleEncoder& encoder,
                                      const TextSampleOptions& options) {
  FRUGAL_ASSERT(encoder.tokenizer != nullptr);
  ChoiceQuestions all;
  for_json_objects(path, [&](const OrderedJson& line) {
    const std::vector<std::string> choices = choices_of(line);
    ChoiceQuestion question{static_cast<int64_t>(all.samples.size()),
                            static_cast<int64_t>(choices.size()), answer_of(line, choices)};
    const Prompt prompt = prompt_of(line, encoder);
    const TokenIds before = prompt.whole ? TokenIds() : encoder.tokenizer->before_text();
    std::vector<Sequence> samples;
    for (const std::string& choice : choices) {
      samples.push_back(choice_behind(prompt, choice, before, *encoder.tokenizer));
      all.bytes.push_back(static_cast<int64_t>(choice.size()));
    }
    if (cut_prompts(samples, static_cast<int64_t>(before.size()), options)) ++all.cut;
    std::move(samples.begin(), samples.end(), std::back_inserter(all.samples));
    all.questions.push_back(question);
  });
  check_some(path, !all.questions.empty());
  return all;
}

}  // namespace frugal::data
