#include "data/text/chat/choice_questions.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::fails;
using frugal_test::TemporaryFolder;

// "<s>" before a text, a, b, c, the space, and the tokens "ab" and " c".
constexpr const char* kTokens =
    R"({"added_tokens": [{"id": 0, "content": "<s>", "special": true}],
        "model": {"type": "BPE", "vocab": {"<s>": 0, " ": 1, "a": 2, "b": 3, "c": 4, "ab": 5, " c": 6},
                  "merges": [["a", "b"], [" ", "c"]]}, "decoder": {"type": "Fuse"},
        "post_processor": {"type": "TemplateProcessing",
          "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}}],
          "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}})";
constexpr const char* kTemplate =
    R"({"chat_template": "{% for m in messages %}<s>{{ m.content }}{% endfor %}{% if add_generation_prompt %}b{% endif %}"})";

struct Questions {
  Questions() {
    folder.write("tokenizer.json", kTokens);
    folder.write("tokenizer_config.json", kTemplate);
    encoder = read_sample_encoder(folder.path());
  }
  // The ids of each choice behind its prompt, of which those from the bar on count.
  std::vector<std::string> read(const std::string& lines, int64_t max_length = 100,
                                bool truncate = false) {
    TextSampleOptions options;
    options.max_length = max_length;
    options.truncate = truncate;
    found = read_choice_questions(folder.write("x.jsonl", lines), encoder, options);
    std::vector<std::string> all;
    for (const Sequence& sample : found.samples) {
      REQUIRE(sample.counted.size() == 1);
      CHECK(static_cast<size_t>(sample.counted[0].end) == sample.ids.size());
      std::string text;
      for (size_t i = 0; i < sample.ids.size(); ++i)
        text += (static_cast<size_t>(sample.counted[0].begin) == i ? "|" : "") +
                std::to_string(sample.ids[i]);
      all.push_back(text);
    }
    return all;
  }
  TemporaryFolder folder;
  SampleEncoder encoder;
  ChoiceQuestions found;
};

using Texts = std::vector<std::string>;

TEST_CASE("choice questions: the choice counts, with a token that begins before it") {
  Questions questions;
  CHECK(questions.read(R"({"prompt": "b", "choices": ["a", "ab", " c"], "answer": 2})") ==
        Texts{"03|2", "03|5", "03|6"});
  CHECK(questions.found.bytes == std::vector<int64_t>{1, 2, 2});
  REQUIRE(questions.found.questions.size() == 1);
  CHECK(questions.found.questions[0].count == 3);
  CHECK(questions.found.questions[0].answer == 2);
  // "ab" and " c" are one token, to which the end of the prompt and the choice belong.
  CHECK(questions.read(R"({"prompt": "ba", "choices": ["b", "c"], "answer": 0})") ==
        Texts{"03|5", "032|4"});
  CHECK(questions.read(R"({"prompt": "b ", "choices": ["b", "c"], "answer": 0})") ==
        Texts{"031|3", "03|6"});
  // What stands before a text is enough to guess from.
  CHECK(questions.read(R"({"prompt": "", "choices": ["b", "c"], "answer": 0})") ==
        Texts{"0|3", "0|4"});
  // A template writes it itself.
  CHECK(
      questions.read(
          R"({"messages": [{"role": "user", "content": "c"}], "choices": ["c", "a"], "answer": 0})") ==
      Texts{"043|4", "043|2"});
}

TEST_CASE("choice questions: all choices of a question lose one part of their prompt") {
  Questions questions;
  const std::string line = R"({"prompt": "cba", "choices": ["c", "cc"], "answer": 0})";
  CHECK(questions.read(line, 5) == Texts{"0432|4", "0432|44"});
  CHECK(questions.found.cut == 0);
  CHECK(questions.read(line, 4, true) == Texts{"032|4", "032|44"});
  CHECK(questions.found.cut == 1);
  CHECK(questions.read(line, 3, true) == Texts{"02|4", "02|44"});
  fails("expected a prompt and a choice of at most 4", [&] { questions.read(line, 4); });
  fails("that leave room for their prompt", [&] { questions.read(line, 2, true); });
}

TEST_CASE("choice questions: an answer is a number, a letter or the text of a choice") {
  Questions questions;
  const auto answer = [&](const std::string& choices, const std::string& given) {
    questions.read(R"({"prompt": "b", "choices": )" + choices + R"(, "answer": )" + given + "}");
    return questions.found.questions[0].answer;
  };
  CHECK(answer(R"(["a", "b"])", "1") == 1);
  CHECK(answer(R"(["a", "b"])", "\"B\"") == 1);
  CHECK(answer(R"(["a", "b"])", "\"b\"") == 1);
  CHECK(answer(R"(["a", " b"])", "\"b\"") == 1);
  CHECK(answer(R"(["a", "b"])", "\" A \"") == 0);
  for (const char* wrong : {"2", "-1", "1.0", "true", "null", "[0]", "\"C\"", "\"1\"", "\"\""})
    fails("line 1: expected as \"answer\"", [&] { answer(R"(["a", "b"])", wrong); });
  for (const char* wrong : {"5", "null", "\"\"", "[]"})
    fails(
        fmt::format("line 1: expected choices that are texts of at least one character, got {} as "
                    "\"choices[1]\"",
                    wrong),
        [&] { answer(fmt::format(R"(["a", {}])", wrong), "0"); });
  const auto asked = [&](const std::string& what) {
    questions.read("{" + what + R"(, "choices": ["a", "b"], "answer": 0})");
  };
  fails("line 1: expected a text as \"prompt\", got 5", [&] { asked(R"("prompt": 5)"); });
  fails("line 1: expected a text as \"messages[0].content\"",
        [&] { asked(R"("messages": [{"role": "user", "content": 5}])"); });
  fails("line 1: expected a text as the content of message 0", [&] {
    asked(R"("messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}])");
  });
  fails("line 1: expected a list of objects as \"tools\"",
        [&] { asked(R"("messages": [{"role": "user", "content": "a"}], "tools": 5)"); });
  fails("an answer that names one choice", [&] { answer(R"(["b", " b"])", "\"b\""); });
}

}  // namespace
}  // namespace frugal::data
