#include "data/text/chat/text_samples.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::fails;
using frugal_test::TemporaryFolder;

// Characters a to z, space and line end, "<s>" before a text, and "</s>" behind it.
std::string small_tokenizer() {
  std::string vocabulary = R"("<s>": 0, "</s>": 1, "<|im_start|>": 2, "<|im_end|>": 3, " ": 4)";
  for (char c = 'a'; c <= 'z'; ++c)
    vocabulary += std::string(", \"") + c + "\": " + std::to_string(5 + c - 'a');
  vocabulary += R"(, "\n": 31, ".": 32, "#": 33, ":": 34)";
  return R"({"added_tokens": [{"id": 0, "content": "<s>", "special": true},
                              {"id": 1, "content": "</s>", "special": true},
                              {"id": 2, "content": "<|im_start|>", "special": true},
                              {"id": 3, "content": "<|im_end|>", "special": true}],
             "model": {"type": "BPE", "vocab": {)" +
         vocabulary + R"(}, "merges": []}, "decoder": {"type": "Fuse"},
             "post_processor": {"type": "TemplateProcessing",
               "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                          {"Sequence": {"id": "A", "type_id": 0}}],
               "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}})";
}

constexpr const char* kConfig =
    R"({"eos_token": "</s>", "chat_template": "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"})";

struct Samples {
  explicit Samples(bool chat = true) {
    folder.write("tokenizer.json", small_tokenizer());
    folder.write("tokenizer_config.json", chat ? kConfig : R"({"eos_token": "</s>"})");
    encoder = read_sample_encoder(folder.path());
  }
  std::vector<Sequence> read(const std::string& lines, const TextSampleOptions& options = {}) {
    counts = {};
    return read_text_samples(folder.write("x.jsonl", lines), encoder, options, counts);
  }
  // Each sample as its text, with brackets around what counts.
  std::vector<std::string> shown(const std::string& lines, const TextSampleOptions& options = {}) {
    std::vector<std::string> all;
    for (const Sequence& sequence : read(lines, options)) {
      std::string text;
      for (size_t at = 0; at <= sequence.ids.size(); ++at) {
        for (const Sequence::Range& range : sequence.counted) {
          if (static_cast<size_t>(range.end) == at) text += ']';
          if (static_cast<size_t>(range.begin) == at) text += '[';
        }
        if (at < sequence.ids.size()) text += encoder.tokenizer->decode({sequence.ids[at]});
      }
      all.push_back(text);
    }
    return all;
  }
  TemporaryFolder folder;
  SampleEncoder encoder;
  TextSampleCounts counts;
};

using Texts = std::vector<std::string>;
constexpr const char* kTalk =
    R"({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"},
        {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})";

std::string one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ' ';
  return text + "\n";
}

TEST_CASE("samples: answers of conversations, prompts, instructions and texts count") {
  Samples samples;
  const std::string talk =
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n[yo<|im_end|>\n]<|im_start|>user\n"
      "a<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]";
  CHECK(samples.shown(one_line(kTalk)) == Texts{talk});
  CHECK(samples.counts.samples == 1);
  CHECK(samples.counts.ids == 48);
  CHECK(samples.counts.counted == 7);
  CHECK(samples.shown(one_line(R"({"conversations": [{"from": "human", "value": "hi"},
      {"from": "gpt", "value": "yo"}, {"from": "human", "value": "a"},
      {"from": "gpt", "value": "b"}]})")) == Texts{talk});
  CHECK(samples.shown(one_line(R"({"system": "s", "conversations": [{"from": "human", "value": "q"},
      {"from": "gpt", "value": "r"}]})")) ==
        Texts{"<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
              "<|im_start|>assistant\n[r<|im_end|>\n]"});
  CHECK(samples.shown(one_line(R"({"prompt": [{"role": "user", "content": "q"}],
      "completion": [{"role": "assistant", "content": "r"}]})")) ==
        Texts{"<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n[r<|im_end|>\n]"});
  CHECK(samples.shown(R"({"instruction": "do", "input": "x", "output": "y"})") ==
        Texts{"<|im_start|>user\ndo\n\nx<|im_end|>\n<|im_start|>assistant\n[y<|im_end|>\n]"});
  CHECK(samples.shown(R"({"prompt": "two and two: ", "completion": "four"})") ==
        Texts{"<s>two and two: [four</s>]"});
  CHECK(samples.shown(R"({"text": "all of it"})") == Texts{"<s>[all of it</s>]"});
  CHECK(samples.shown(R"({"prompt": "q", "completion": "r"})", {.answers_only = false}) ==
        Texts{"[<s>qr</s>]"});
  CHECK(samples.counts.counted == 3);  // the first id is never a target
  // Without a template, instructions get their published prompt.
  Samples plain(false);
  CHECK(plain.encoder.end == 1);
  const Texts made = plain.shown(R"({"instruction": "do", "input": "", "output": "y"})");
  REQUIRE(made.size() == 1);
  CHECK(made[0].ends_with("do\n\n### esponse:\n[y</s>]"));  // capitals are no tokens here
  fails("line 1: expected a chat template", [&] { plain.read(one_line(kTalk)); });
}

TEST_CASE("samples: an answer is asked for with the tokens that stand before one in training") {
  Samples samples;
  const auto asked = [&](const char* source) {
    samples.encoder.chat = ChatTemplate(source, "t");
    const TokenIds ids = prompt_ids(
        samples.encoder,
        {nlohmann::ordered_json::parse(R"([{"role": "user", "content": "hi"}])"), nullptr});
    return samples.encoder.tokenizer->decode(ids);
  };
  CHECK(asked("{% for m in messages %}{% if m.role == 'user' %}q: {{ m.content }} {% else %}a: "
              "{{ m.content }}#{% endif %}{% endfor %}") == "q: hi a: ");
  CHECK(asked("{% for m in messages %}{{ m.content }}#{% endfor %}"
              "{% if add_generation_prompt %}a:{% endif %}") == "hi#a:");
}

TEST_CASE("samples: of messages as a prompt, no answer counts; nor does one of weight 0") {
  Samples samples;
  const std::string shown =
      "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n<|im_start|>user\n"
      "a<|im_end|>\n<|im_start|>assistant\n[b<|im_end|>\n]";
  CHECK(
      samples.shown(one_line(
          R"({"prompt": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"},
                           {"role": "user", "content": "a"}],
                "completion": [{"role": "assistant", "content": "b"}]})")) == Texts{shown});
  const auto weighted = [](const std::string& weight) {
    return one_line(R"({"messages": [{"role": "user", "content": "hi"},
        {"role": "assistant", "content": "yo", "weight": )" +
                    weight + R"(}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "weight": 1}]})");
  };
  CHECK(samples.shown(weighted("0")) == Texts{shown});
  CHECK(samples.shown(weighted("null")) == samples.shown(one_line(kTalk)));
  fails("line 1: expected 0 or 1 as the weight of message 1, got 0.5",
        [&] { samples.read(weighted("0.5")); });
}

TEST_CASE("samples: a system beside the messages is the first of them, or an error") {
  Samples samples;
  const std::string user = R"({"role": "user", "content": "q"})",
                    answer = R"({"role": "assistant", "content": "r"})",
                    system = R"("system": "s", )", own = R"({"role": "system", "content": "s"}, )";
  const Texts talk{
      "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nq<|im_end|>\n"
      "<|im_start|>assistant\n[r<|im_end|>\n]"};
  for (const std::string name : {"messages", "conversations"}) {
    CAPTURE(name);
    const std::string list = "\"" + name + "\": [";
    CHECK(samples.shown("{" + list + own + user + ", " + answer + "]}") == talk);
    CHECK(samples.shown("{" + system + list + user + ", " + answer + "]}") == talk);
    CHECK(samples.shown("{" + system + list + own + user + ", " + answer + "]}") == talk);
    fails("line 1: expected one message of the role system, got \"t\" as \"system\" and \"s\"",
          [&] { samples.read(R"({"system": "t", )" + list + own + user + ", " + answer + "]}"); });
  }
  CHECK(samples.shown("{" + system + "\"prompt\": [" + user + "], \"completion\": [" + answer +
                      "]}") == talk);
  CHECK(samples.shown("{" + system + R"("instruction": "q", "output": "r"})") == talk);
  const char* none = "line 1: expected messages and a chat template beside \"system\"";
  fails(none, [&] { samples.read("{" + system + R"("prompt": "q", "completion": "r"})"); });
  fails("line 1: expected no \"history\" beside an instruction, got [[\"a\",\"b\"]]",
        [&] { samples.read(R"({"instruction": "q", "output": "r", "history": [["a", "b"]]})"); });
  CHECK(samples.shown(R"({"instruction": "q", "output": "r", "history": []})").size() == 1);
  Samples plain(false);
  fails(none, [&] { plain.read("{" + system + R"("instruction": "q", "output": "r"})"); });
}

TEST_CASE("samples: long ones are errors or are cut, and counted") {
  Samples samples;
  const std::string lines = std::string(R"({"prompt": "q", "completion": "abcdefgh"})") + "\n" +
                            R"({"prompt": "abcdefgh", "completion": "z"})" + "\n" +
                            R"({"prompt": "q", "completion": "r"})" + "\n";
  fails("x.jsonl\", line 1: expected a sample of at most 5 inputs (data.max_length), got 10",
        [&] { samples.read(lines, {.max_length = 5}); });
  CHECK(samples.shown(lines, {.max_length = 5, .truncate = true}) ==
        Texts{"<s>q[abcd]", "<s>q[r</s>]"});
  CHECK(samples.counts.cut == 2);
  CHECK(samples.counts.without_answers == 1);
  CHECK(samples.counts.samples == 2);
  fails("got none; without any within data.max_length: 1 sample", [&] {
    samples.read(R"({"prompt": "abcdefgh", "completion": "z"})",
                 {.max_length = 5, .truncate = true});
  });
}

TEST_CASE("samples: a member of a wrong type is named with file, line and entry") {
  Samples samples;
  const std::string user = R"({"role": "user", "content": "a"})";
  const auto rejects = [&](const std::string& line, const std::string& why) {
    CAPTURE(line);
    fails("x.jsonl\", line 2: expected " + why, [&] { samples.read("\n" + line + "\n"); });
  };
  for (const std::string wrong : {"5", "null", "{}", "true", "1.5"}) {
    const std::string got = ", got " + wrong, text = "a text as \"";
    const std::string parts =
        ", or a list of parts such as {\"type\": \"text\", \"text\": \"...\"}" + got;
    for (const std::string name : {"messages", "conversations"})
      rejects(
          "{\"" + name + "\": [" + user + R"(, {"role": "assistant", "content": )" + wrong + "}]}",
          text + name + "[1].content\"" + parts);
    rejects(
        R"({"messages": [{"role": "user", "content": [{"type": "text", "text": )" + wrong + "}]}]}",
        text + "messages[0].content[0].text\"");
    rejects(R"({"messages": [{"role": "user", "content": [)" + wrong + "]}]}",
            "as \"messages[0].content[0]\" a part such as");
    rejects(R"({"messages": [{"content": "a", "role": )" + wrong + "}]}",
            text + "messages[0].role\"" + got);
    rejects("{\"messages\": [" + wrong + "]}",
            "a message with a role and a content as \"messages[0]\"" + got);
    for (const std::string name : {"messages", "conversations"})
      rejects("{\"" + name + "\": " + wrong + "}", "a list of messages as \"" + name + "\"" + got);
    rejects(R"({"conversations": [{"from": "human", "value": )" + wrong + "}]}",
            text + "conversations[0].value\"" + got);
    rejects(R"({"conversations": [{"value": "a", "from": )" + wrong + "}]}",
            text + "conversations[0].from\"" + got);
    rejects("{\"prompt\": \"a\", \"completion\": " + wrong + "}", text + "completion\"" + got);
    rejects("{\"completion\": \"a\", \"prompt\": " + wrong + "}", text + "prompt\"" + got);
    rejects("{\"prompt\": [" + user + R"(], "completion": [{"role": "assistant", "content": )" +
                wrong + "}]}",
            text + "completion[0].content\"" + parts);
    rejects("{\"text\": " + wrong + "}", text + "text\"" + got);
    rejects("{\"output\": \"a\", \"instruction\": " + wrong + "}", text + "instruction\"" + got);
    rejects("{\"instruction\": \"a\", \"output\": " + wrong + "}", text + "output\"" + got);
    if (wrong == "null") continue;  // as if it was not there
    rejects(R"({"instruction": "a", "output": "b", "input": )" + wrong + "}",
            text + "input\"" + got);
    rejects(R"({"instruction": "a", "output": "b", "system": )" + wrong + "}",
            text + "system\"" + got);
    rejects(R"({"conversations": [{"from": "human", "value": "a"}], "system": )" + wrong + "}",
            text + "system\"" + got);
    rejects("{\"messages\": [" + user + "], \"tools\": " + wrong + "}",
            "a list of objects as \"tools\"" + got);
    rejects(R"({"messages": [{"role": "user", "content": "a", "tool_calls": )" + wrong + "}]}",
            "a list of objects as \"messages[0].tool_calls\"" + got);
  }
  rejects(R"({"messages": [{"role": "user"}]})", "a text as \"messages[0].content\"");
  rejects(R"({"conversations": [{"from": "human"}]})",
          "\"from\" and \"value\" in \"conversations[0]\", got {\"from\":\"human\"}");
}

TEST_CASE("samples: contents in parts and calls of tools are as the template reads them") {
  Samples samples;
  const std::string line =
      R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]},
                       {"role": "assistant", "content": null, "tool_calls": [{}]}]})";
  const auto with = [&](const std::string& written) {
    samples.encoder.chat.emplace("{% for m in messages %}" + written + "{% endfor %}", "t.jinja");
  };
  with(
      "<|im_start|>{% for p in m.content or [] %}{{ p.text }}{% endfor %}{% if m.tool_calls %}b"
      "{% endif %}");
  CHECK(samples.shown(one_line(line)) == Texts{"<|im_start|>a<|im_start|>[b]"});
  with("<|im_start|>{{ m.content }}");
  fails(
      "line 1: expected a text as the content of message 0, since the chat template reads no parts",
      [&] { samples.read(one_line(line)); });
}

TEST_CASE("samples: lines that cannot be name file and line") {
  Samples samples;
  const auto rejects = [&](const std::string& line, const char* why) {
    CAPTURE(line);
    fails(why, [&] { samples.read("\n" + one_line(line)); });
  };
  rejects("[1]", "x.jsonl\", line 2: expected a JSON object");
  rejects(R"([{"text": "a"}])", "jq -c '.[]' FILE makes JSON lines of a file that is one list");
  rejects(R"({"a": {"text": "a", "text": "b"}})", "line 2: \"a.text\": expected each key once");
  rejects("{", "line 2: parse error at column 2: ");
  rejects(R"({"a": 1, "b": 2})",
          "line 2: expected messages, conversations, prompt and completion, "
          "instruction and output, or text, got a, b");
  rejects(R"({"text": 3})", "line 2: expected a text as \"text\", got 3");
  rejects(R"({"messages": []})", "line 2: expected a list of messages");
  rejects(R"({"messages": [{"content": "x"}]})",
          "line 2: expected a message with a role and a content as \"messages[0]\", got");
  rejects(R"({"messages": [{"role": "user", "content": "a"}, {"role": "critic", "content": "b"},
                           {"role": "assistant", "content": "c"}]})",
          "it writes nothing of message 1, whose role is \"critic\"");
  rejects(R"({"conversations": [{"from": "nobody", "value": "b"}]})", "whose role is \"nobody\"");
  rejects(R"({"messages": [{"role": "user", "content": "a"}]})", "expected samples with answers");
  samples.folder.write("tokenizer_config.json", R"({"eos_token": "<none>"})");
  fails("expected an eos_token that the tokenizer has, got \"<none>\"",
        [&] { read_sample_encoder(samples.folder.path()); });
}

}  // namespace
}  // namespace frugal::data
