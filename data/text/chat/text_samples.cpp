#include "data/text/chat/text_samples.h"

#include <algorithm>

#include "core/error.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/text/chat/sample_lines.h"
#include "data/text/hub/hub_tokenizer.h"

namespace frugal::data {
namespace {

using OrderedJson = nlohmann::ordered_json;

// A sample as text. The parts `answers` of it are trained on.
struct WrittenSample {
  std::string text;
  std::vector<Span> answers;
  bool whole = false;  // ends and special tokens are written already
};

class SampleWriter {
 public:
  explicit SampleWriter(const SampleEncoder& encoder) : encoder_(encoder) {}

  // Errors: without file and line.
  WrittenSample write(const OrderedJson& line) const {
    if (line.contains("messages")) return of_messages(messages_of(line, "messages"), line);
    if (line.contains("conversations")) return of_messages(renamed(line), line);
    if (line.contains("prompt") && line.contains("completion")) return of_prompt(line);
    if (line.contains("instruction") && line.contains("output")) return of_instruction(line);
    if (line.contains("text")) {
      const std::string text = text_member(line, "text");
      return {text, {{0, text.size()}}};
    }
    throw Error(fmt::format(
        "expected messages, conversations, prompt and completion, instruction and output, or text, "
        "got {}",
        member_names(line)));
  }

 private:
  // ShareGPT's {"from", "value"} as {"role", "content"}.
  static OrderedJson renamed(const OrderedJson& line) {
    const OrderedJson& turns = line.at("conversations");
    const auto has_role = [](const OrderedJson& turn) {
      return turn.is_object() && turn.contains("role");
    };
    if (!turns.is_array() || turns.empty() || has_role(turns[0]))
      return messages_of(line, "conversations");
    OrderedJson messages = OrderedJson::array();
    for (size_t i = 0; i < turns.size(); ++i) {
      const OrderedJson& turn = turns[i];
      const std::string place = fmt::format("conversations[{}]", i);
      if (!turn.is_object() || !turn.contains("from") || !turn.contains("value"))
        throw Error(fmt::format("expected \"from\" and \"value\" in {}, got {}", in_quotes(place),
                                printable(turn.dump(), 80)));
      std::string role = text_member(turn, "from", place + ".");
      for (const auto& [name, known] : {std::pair{"human", "user"},
                                        {"gpt", "assistant"},
                                        {"chatgpt", "assistant"},
                                        {"bing", "assistant"},
                                        {"bard", "assistant"},
                                        {"model", "assistant"},
                                        {"observation", "tool"}})
        if (role == name) role = known;
      messages.push_back({{"role", role}, {"content", text_member(turn, "value", place + ".")}});
    }
    return with_system(std::move(messages), line);
  }

  // Does the answer count? OpenAI's files give an answer the weight 0 if it does not.
  static bool counts(const OrderedJson& message, size_t number) {
    const OrderedJson weight = message.value("weight", OrderedJson());
    if (weight.is_null() || weight == 1) return true;
    if (weight == 0) return false;
    throw Error(fmt::format("expected 0 or 1 as the weight of message {}, got {}", number,
                            printable(weight.dump(), 80)));
  }

  // Answers before the message `first` do not count.
  WrittenSample of_messages(const OrderedJson& messages, const OrderedJson& line,
                            size_t first = 0) const {
    ConversationText made = template_for(encoder_.chat).training_text({messages, tools_of(line)});
    check_parts_are_read(messages, made.text);
    std::vector<Span> answers;
    for (size_t i = 0; i < made.answers.size(); ++i)
      if (const size_t at = made.messages[i]; at >= first && counts(messages[at], at))
        answers.push_back(made.answers[i]);
    return {std::move(made.text), std::move(answers), true};
  }

  // Errors: a "system" beside texts, which have no place for it.
  static void check_no_system(const OrderedJson& line) {
    if (!text_or_nothing(line, "system").empty())
      throw Error(
          "expected messages and a chat template beside \"system\", got a text without a place for "
          "it");
  }

  WrittenSample of_prompt(const OrderedJson& line) const {
    if (line.at("prompt").is_array() && line.at("completion").is_array()) {
      check_messages(line.at("completion"), "completion");
      OrderedJson messages = messages_of(line, "prompt");
      const size_t first = messages.size();
      for (const OrderedJson& message : line.at("completion")) messages.push_back(message);
      return of_messages(messages, line, first);
    }
    check_no_system(line);
    const std::string prompt = text_member(line, "prompt"),
                      answer = text_member(line, "completion");
    return {prompt + answer, {{prompt.size(), prompt.size() + answer.size()}}};
  }

  WrittenSample of_instruction(const OrderedJson& line) const {
    const std::string instruction = text_member(line, "instruction"),
                      input = text_or_nothing(line, "input"), answer = text_member(line, "output");
    if (const OrderedJson history = line.value("history", OrderedJson()); !history.empty())
      throw Error(
          fmt::format("expected no \"history\" beside an instruction, got {}; \"messages\" have "
                      "the turns of a conversation",
                      printable(history.dump(), 80)));
    if (encoder_.chat) {
      OrderedJson messages = OrderedJson::array();
      messages.push_back({{"role", "user"},
                          {"content", input.empty() ? instruction : instruction + "\n\n" + input}});
      messages.push_back({{"role", "assistant"}, {"content", answer}});
      return of_messages(with_system(std::move(messages), line), line);
    }
    check_no_system(line);
    const std::string prompt =
        input.empty()
            ? fmt::format(
                  "Below is an instruction that describes a task. Write a response that "
                  "appropriately completes the request.\n\n### Instruction:\n{}\n\n### "
                  "Response:\n",
                  instruction)
            : fmt::format(
                  "Below is an instruction that describes a task, paired with an input "
                  "that provides further context. Write a response that appropriately "
                  "completes the request.\n\n### Instruction:\n{}\n\n### Input:\n{}\n\n### "
                  "Response:\n",
                  instruction, input);
    return {prompt + answer, {{prompt.size(), prompt.size() + answer.size()}}};
  }

  const SampleEncoder& encoder_;
};

// The ids of a sample and which of them are targets.
Sequence encoded(const WrittenSample& sample, const SampleEncoder& encoder, bool answers_only) {
  std::vector<size_t> places;
  for (const Span& span : sample.answers) {
    places.push_back(span.begin);
    places.push_back(span.end);
  }
  std::vector<int64_t> counts;
  const Tokenizer& tokenizer = *encoder.tokenizer;
  Sequence made;
  made.ids = tokenizer.encode_counting(sample.text, places, counts);
  const auto count = static_cast<int64_t>(made.ids.size());
  int64_t before = 0;
  if (!sample.whole) {
    // What the model expects before a text, and the end.
    before = static_cast<int64_t>(tokenizer.before_text().size());
    made.ids = tokenizer.with_special(made.ids);
    const bool ended = !made.ids.empty() && made.ids.back() == encoder.end;
    if (encoder.end && !ended) made.ids.push_back(*encoder.end);
  }
  made.second = static_cast<int32_t>(made.ids.size());
  if (!answers_only) {
    made.counted = {{0, made.second}};
    return made;
  }
  for (size_t i = 0; i < counts.size(); i += 2) {
    // An answer at the end of the text takes what ends the text.
    const int64_t end =
        counts[i + 1] == count && !sample.whole ? made.second : before + counts[i + 1];
    made.counted.push_back({static_cast<int32_t>(before + counts[i]), static_cast<int32_t>(end)});
  }
  return made;
}

// How many targets count: the first id is none.
int64_t targets_of(const Sequence& sequence) {
  int64_t count = 0;
  for (const Sequence::Range& range : sequence.counted)
    count += std::max(0, range.end - std::max(range.begin, 1));
  return count;
}

void cut_sequence(Sequence& sequence, int64_t ids) {
  sequence.ids.resize(static_cast<size_t>(ids));
  sequence.second = static_cast<int32_t>(ids);
  for (Sequence::Range& range : sequence.counted) {
    range.begin = std::min(range.begin, sequence.second);
    range.end = std::min(range.end, sequence.second);
  }
}

}  // namespace

bool has_sample_encoder(const std::string& folder) {
  return is_file(folder + "/tokenizer.json") || is_file(folder + "/tokenizer.model");
}

std::vector<std::string> sample_files(const std::string& folder) {
  const bool json = is_file(folder + "/tokenizer.json");
  std::vector<std::string> names = {json ? "tokenizer.json" : "tokenizer.model",
                                    "tokenizer_config.json", "chat_template.jinja"};
  if (!json) names.insert(names.end(), {"added_tokens.json", "special_tokens_map.json"});
  std::erase_if(names, [&](const std::string& name) { return !is_file(folder + "/" + name); });
  return names;
}

SampleEncoder read_sample_encoder(const std::string& folder) {
  SampleEncoder made;
  const std::shared_ptr<const HubTokenizer> tokenizer = HubTokenizer::of_folder(folder);
  made.chat = ChatTemplate::of_folder(folder);
  for (const auto& [name, text] : special_tokens(folder)) {
    if (name != "eos_token") continue;
    made.end = tokenizer->find(text);
    FRUGAL_CHECK(made.end.has_value(),
                 "[tokenizer] {}: expected an eos_token that the tokenizer has, got {}",
                 in_quotes(folder + "/tokenizer_config.json", 300), in_quotes(text));
  }
  made.tokenizer = tokenizer;
  return made;
}

TokenIds prompt_ids(const SampleEncoder& encoder, const Conversation& conversation) {
  const std::string text = encoder.chat->prompt(conversation);
  if (encoder.chat->has_prompt()) return encoder.tokenizer->encode(text);
  std::vector<int64_t> counts;
  TokenIds ids = encoder.tokenizer->encode_counting(text + "A", {text.size()}, counts);
  ids.resize(static_cast<size_t>(counts[0]));
  return ids;
}

std::vector<Sequence> read_text_samples(const std::string& path, const SampleEncoder& encoder,
                                        const TextSampleOptions& options,
                                        TextSampleCounts& counts) {
  FRUGAL_ASSERT(encoder.tokenizer != nullptr);
  const SampleWriter writer(encoder);
  std::vector<Sequence> all;
  for_json_objects(path, [&](const OrderedJson& line) {
    const WrittenSample written = writer.write(line);
    if (written.whole) ++counts.conversations;
    Sequence sequence = encoded(written, encoder, options.answers_only);
    const auto inputs = static_cast<int64_t>(sequence.ids.size()) - 1;
    if (inputs > options.max_length) {
      if (!options.truncate)
        throw Error(
            fmt::format("expected a sample of at most {} inputs (data.max_length), got {}; with "
                        "data.name=conversations, data.truncate cuts such samples",
                        options.max_length, inputs));
      cut_sequence(sequence, options.max_length + 1);
      ++counts.cut;
    }
    const int64_t targets = targets_of(sequence);
    if (targets == 0) {
      ++counts.without_answers;
      return;
    }
    ++counts.samples;
    counts.ids += static_cast<int64_t>(sequence.ids.size());
    counts.counted += targets;
    all.push_back(std::move(sequence));
  });
  FRUGAL_CHECK(!all.empty(), "[jsonl] {}: expected samples with answers, got none{}",
               in_quotes(path),
               counts.without_answers > 0 ? fmt::format("; without any within data.max_length: {}",
                                                        with_noun(counts.without_answers, "sample"))
                                          : "");
  return all;
}

}  // namespace frugal::data
