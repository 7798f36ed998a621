// Multiple choice for language models, from files of JSON lines: a question in each line.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/text/chat/text_samples.h"

namespace frugal::data {

struct ChoiceQuestion {
  int64_t first = 0, count = 0;  // the places of its choices in ChoiceQuestions::samples
  int64_t answer = 0;            // which of its choices is right, from 0
};

struct ChoiceQuestions {
  std::vector<ChoiceQuestion> questions;
  // Each choice of each question behind the prompt, of which the choice alone counts. `bytes` are
  // those of the choices' texts.
  std::vector<Sequence> samples;
  std::vector<int64_t> bytes;
  int64_t cut = 0;  // questions whose prompts have lost their beginnings
};

// Are the lines of a file questions? Those are lines with `choices`, or with a prompt and an answer
// but no completion. Errors, with file and line: a line that is not a JSON object; a line of the
// other kind than the first; a file without lines.
bool are_questions(const std::string& path);

// A line is {"prompt": text, "choices": [texts], "answer": ...}, or has `messages` (and perhaps
// `tools`) in the place of `prompt`: a conversation that ends with a turn of the user, which the
// template writes with the beginning of an answer. A choice follows it as it is, with no token
// behind it. The tokens are those of the prompt and the choice as one text; a token to which both
// belong counts as the choice's. `answer` is the number of the right choice from 0, its text, or
// its letter from "A" on. The options max_length and truncate count here. With `truncate`, a prompt
// loses its beginning where it has more than max_length inputs with the longest choice. What the
// tokenizer puts before a text stays. Errors name file and line: other lines than these; fewer than
// two choices, or more than kMostChoices; an empty choice, or one without tokens; an answer that is
// none of them, or that may be two of them; no token before a choice; without `truncate`, more than
// max_length inputs; a choice that leaves no room for any of its prompt; those of the template and
// the tokenizer; a file without questions.
ChoiceQuestions read_choice_questions(const std::string& path, const SampleEncoder& encoder,
                                      const TextSampleOptions& options);
constexpr size_t kMostChoices = 1000;

}  // namespace frugal::data
