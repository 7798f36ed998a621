// Samples for language models from files of JSON lines: conversations, prompts and completions,
// instructions, texts.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/text/chat/chat_template.h"
#include "data/text/sequence_batches.h"
#include "data/text/tokenizer.h"

namespace frugal::data {

// What turns a line into ids.
struct SampleEncoder {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat;  // none: conversations are an error
  std::optional<int32_t> end;        // the token behind a text; none: there is none
};

// Whether a folder has a tokenizer.json or a tokenizer.model, and the names of the files that it is
// read from: those that are there. With a tokenizer.json, its tokenizer.model is not read.
bool has_sample_encoder(const std::string& folder);
std::vector<std::string> sample_files(const std::string& folder);
// The tokenizer of a folder (HubTokenizer::of_folder), its chat template and its "eos_token".
// Errors: those of HubTokenizer and ChatTemplate; an "eos_token" that the tokenizer does not have.
SampleEncoder read_sample_encoder(const std::string& folder);

// The ids before the next answer. Without a generation prompt in the template, a token that holds a
// part of the answer too, such as a space and its first word, is left to the answer. REQUIRES: a
// template. Errors: those of ChatTemplate::prompt().
TokenIds prompt_ids(const SampleEncoder& encoder, const Conversation& conversation);

struct TextSampleOptions {
  int64_t max_length = 1024;  // inputs of a sample, which are one less than its ids
  bool answers_only = true;   // false: all tokens count
  bool truncate = false;      // longer samples lose their ends; false: they are errors
};

struct TextSampleCounts {
  int64_t samples = 0;                   // that are used
  int64_t cut = 0, without_answers = 0;  // the latter are left out
  int64_t ids = 0, counted = 0;          // in those that are used; counted: targets of the loss
  int64_t conversations = 0;             // lines that the chat template wrote
};

// A line is one of
//   {"messages": [{"role", "content", ...}, ...], "tools": [...]}   also under "conversations"
//   {"conversations": [{"from", "value"}, ...]}                     ShareGPT's names of roles
//   {"prompt": ..., "completion": ...}                              texts, or lists of messages
//   {"instruction": ..., "input": ..., "output": ...}               Alpaca's
//   {"text": ...}
// A "system" beside messages or an instruction becomes the first message. Answers are what the role
// assistant says, in a completion of messages as elsewhere, but for messages of the weight 0;
// completions and outputs; each with the ends that the template or the tokenizer gives it. A text
// counts as a whole. Instructions become a conversation if there is a template, and Alpaca's
// published prompt otherwise. Errors name file and line: a line that is not a JSON object; an
// object that has none of these members; a member of another type; a "system" without a place for
// it; an instruction with a "history"; a conversation without a template; a conversation that the
// template does not write (ChatTemplate); without `truncate`, a sample whose inputs are more than
// max_length; a file in which no sample counts.
std::vector<Sequence> read_text_samples(const std::string& path, const SampleEncoder& encoder,
                                        const TextSampleOptions& options, TextSampleCounts& counts);

}  // namespace frugal::data
