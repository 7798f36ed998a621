#include "data/text/chat/chat_template.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "data/formats/json_strict.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::fails;
using frugal_test::TemporaryFolder;
using OrderedJson = nlohmann::ordered_json;

// What a template does, compared with jinja2's "expected", or "error".
void check_result(const OrderedJson& expected, const std::function<std::string()>& render) {
  if (expected.contains("error")) {
    CHECK_THROWS_AS(render(), Error);
    return;
  }
  std::string text;
  try {
    text = render();
  } catch (const Error& error) {
    FAIL_CHECK(error.what());
    return;
  }
  CHECK(text == expected.at("expected").get<std::string>());
}

TEST_CASE("chat templates: texts are those of jinja2") {
  // tools/chat_golden.py --cases writes what it says.
  const auto cases = parse_json<OrderedJson>(
      frugal_test::content_of(FRUGAL_TEST_FILES "/data/text/chat/cases.json"));
  REQUIRE(cases.at("templates").size() == 77);
  jinja::Template::Variables variables;
  for (const auto& [name, value] : cases.at("variables").items())
    variables.emplace_back(name, jinja::Value::of_json(value));
  for (const OrderedJson& each : cases.at("templates")) {
    const auto source = each.at("template").get<std::string>();
    CAPTURE(source);
    check_result(each, [&] { return jinja::Template(source).render(variables).text; });
  }
  for (const OrderedJson& chat : cases.at("chats")) {
    const auto name = chat.at("name").get<std::string>();
    CAPTURE(name);
    const ChatTemplate own(chat.at("template").get<std::string>(), name,
                           {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    for (size_t i = 0; i < cases.at("conversations").size(); ++i) {
      const OrderedJson& each = cases.at("conversations")[i];
      CAPTURE(i);
      check_result(chat.at("results")[i], [&] {
        return own.render({each.at("messages"), each.value("tools", OrderedJson())},
                          each.value("add_generation_prompt", false));
      });
    }
  }
}

std::string run(const std::string& source) { return jinja::Template(source).render({}).text; }

TEST_CASE("chat templates: what is asked for without end is given up") {
  fails("at most 20000000 steps", [] {
    run("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}");
  });
  fails("expected at most 100000", [] { run("{{ range(10000000) | list }}"); });
  fails("expected at most", [] { run("{{ 'abcdefgh' * 100000000 }}"); });
  fails("expected at most", [] {
    run("{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}"
        "{% endfor %}");
  });
  fails("expected at most", [] {
    run("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = n.x + n.x %}"
        "{% endfor %}");
  });
  fails("deeply nested", [] { run("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"); });
  fails("deeply nested", [] {
    run("{% set n = namespace(x=[]) %}{% for i in range(99) %}{% set n.x = [n.x] %}{% endfor %}"
        "{{ n.x }}");
  });
  fails("deeply nested", [] {
    run("{% set n = namespace(x=1) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
        "{{ n.x == n.x }}");
  });
  fails("deeply nested", [] {
    run("{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}");
  });
  fails("at most 200 namespaces", [] {
    run("{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set m = namespace() %}"
        "{% set l = [m] %}{% set m.y = n.x %}{% set n.x = l %}{% endfor %}");
  });
  fails("got a namespace", [] { run("{% set n = namespace() %}{% set n.n = n %}"); });
  fails("less nesting",
        [] { run("{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}"); });
  fails("less nesting", [] { run("{{ " + std::string(1000, '-') + "1 }}"); });
  const auto chain = [](const std::string& link, int links) {
    std::string text = "1";
    for (int i = 0; i < links; ++i) text += link;
    return text;
  };
  for (const char* link :
       {" + 1", " ~ 1", " or 1", " and 1", "|string", "[0]", ".a", "()", " is string"})
    fails("shorter expression", [&] { run("{{ " + chain(link, 300) + " }}"); });
  CHECK(run("{{ " + chain(" + 1", 150) + " }}") == "151");
  fails("deeply nested", [&] {
    run("{% macro m() %}{{ m()" + chain(" ~ 1", 150).substr(1) + " }}{% endmacro %}{{ m() }}");
  });
  fails("deeply nested", [] {
    run("{% set n = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set n.a = [n.a, n.a] %}"
        "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a < n.b }}");
  });
  fails("64 bits", [] { run("{{ 9223372036854775807 + 1 }}"); });
  fails("range of f64", [] { run("{{ 2147483641e308 }}"); });
  fails("got 0", [] { run("{{ 1 % 0 }}"); });
  fails("line 3: ", [] { run("a\n\n{{ x.y }}"); });
  fails("line 2: expected", [] { run("a\n{% if %}"); });
}

constexpr const char* kChatMl =
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

std::vector<std::string> answers(const ChatTemplate& chat, const char* messages) {
  const ConversationText made =
      chat.training_text({parse_json<OrderedJson>(messages), OrderedJson()});
  std::vector<std::string> texts;
  for (const Span& span : made.answers)
    texts.push_back(made.text.substr(span.begin, span.end - span.begin));
  return texts;
}

using Texts = std::vector<std::string>;
constexpr const char* kTwoTurns =
    R"([{"role": "system", "content": "S"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": " b "}, {"role": "user", "content": "c"},
        {"role": "assistant", "content": "d"}])";

TEST_CASE("chat templates: mistakes are named") {
  fails("expected %s or %d", [] { run("{{ '%s %s' % 'a' }}"); });
  fails("a whole number as a precision", [] { run("{{ 3.5|round('a') }}"); });
  fails("expected a number, got a text", [] { run("{{ -'a' }}"); });
  fails("expected a list or a text, got", [] { run("{{ 3[1:] }}"); });
  fails("expected 2 values for a, got 3", [] { run("{% set a, b = [1, 2, 3] %}"); });
  fails("expected values for cycle",
        [] { run("{% for i in [1] %}{{ loop.cycle() }}{% endfor %}"); });
  fails("expected at most 1 arguments for m, got 2",
        [] { run("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"); });
  fails("expected an attribute for selectattr", [] { run("{{ [1] | selectattr | list }}"); });
  fails("expected an object for items, got", [] { run("{{ 3 | items | list }}"); });
  fails("expected more arguments for replace", [] { run("{{ 'a'.replace('a') }}"); });
  fails("expected a function, got something undefined as \"shout\"",
        [] { run("{{ 'a'.shout() }}"); });
  fails("expected an argument for the test", [] { run("{{ 3 is divisibleby }}"); });
  fails("expected key or value to sort by, got \"size\"",
        [] { run("{{ {'a': 1} | dictsort(false, 'size') }}"); });
  fails("expected a number for abs", [] { run("{{ 'a' | abs }}"); });
  fails("expected a value that can be written, got a function", [] { run("{{ [range] }}"); });
  fails("expected a value that JSON has, got", [] { run("{{ range | tojson }}"); });
  fails("expected two values that have an order, got", [] { run("{{ 1 < 'a' }}"); });
  fails("expected a text to look for in a text, got", [] { run("{{ 3 in 'abc' }}"); });
  fails("expected a list, a text or an object to look in, got", [] { run("{{ 'a' in 3 }}"); });
  fails("expected a whole number as", [] { run("{{ range('a') }}"); });
}

TEST_CASE("chat templates: which bytes are answers") {
  const ChatTemplate chat(kChatMl, "t");
  CHECK(answers(chat, kTwoTurns) == Texts{" b <|im_end|>\n", "d<|im_end|>\n"});
  CHECK(answers(chat, R"([{"role": "user", "content": "a"}])").empty());
  // The header is not the text that add_generation_prompt adds: the answer begins with its content.
  const ChatTemplate always(
      "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}{{ eos_token }}{% endfor %}[x]",
      "t", {{"eos_token", "</s>"}});
  CHECK(answers(always, kTwoTurns) == Texts{"b</s>", "d</s>"});
  // A system message that is written before the others are walked through, in another order.
  const ChatTemplate first(
      "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = "
      "messages[1:] "
      "%}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}",
      "t");
  CHECK(answers(first, kTwoTurns) == Texts{" b ", "d"});
  // What a template drops from earlier answers is no part of the text.
  const ChatTemplate drops(
      "{% for m in messages %}<{{ m.role }}>{{ m.content.split('|')[-1] if not loop.last else "
      "m.content }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}",
      "t");
  CHECK(
      answers(drops, R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "x|y"},
                           {"role": "user", "content": "r"}, {"role": "assistant", "content": "z|w"}])") ==
      Texts{"y", "z|w"});
}

std::string talk(const std::string& question, const std::string& answer) {
  return R"([{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + R"("}])";
}

std::string prompt(const ChatTemplate& chat, const char* messages) {
  return chat.prompt({parse_json<OrderedJson>(messages), OrderedJson()});
}

constexpr const char* kVicuna =
    "{% for m in messages %}{% if m.role == 'user' %}USER: {{ m.content }} {% else %}ASSISTANT: "
    "{{ m.content }}</s>{% endif %}{% endfor %}";
constexpr const char* kHi = R"([{"role": "user", "content": "hi"}])";

TEST_CASE("chat templates: an answer that its header holds, too, begins behind the header") {
  const ChatTemplate without(kVicuna, "t");
  for (const char* answer : {"A", "S", "I", "ASSISTANT", ": "})
    CHECK(answers(without, talk("Which", answer).c_str())[0] ==
          (std::string_view(answer) == ": " ? ": </s>" : std::string(answer) + "</s>"));
  // The prompt begins a thought, and the conversation has none.
  const ChatTemplate thinks(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}|{% endfor %}"
      "{% if add_generation_prompt %}[assistant]<think>\n{% endif %}",
      "t");
  for (const char* answer : {"s", "ant", "is"})
    CHECK(answers(thinks, talk("q", answer).c_str()) == Texts{std::string(answer) + "|"});
  CHECK(answers(thinks, talk("q", "").c_str()) == Texts{"|"});
  // Every character of an answer may be one that shows where answers differ.
  CHECK(answers(thinks, talk("q", "~^`~").c_str()) == Texts{"~^`~|"});
  const ChatTemplate shouts(
      "{% for m in messages %}[{{ m.role }}]{{ m.content | upper }}|{% endfor %}", "t");
  CHECK(answers(shouts, talk("q", "so").c_str()) == Texts{"SO|"});
}

TEST_CASE("chat templates: thoughts and calls are part of an answer") {
  const ChatTemplate chat(
      "{% for m in messages %}[{{ m.role }}]{% if m.reasoning_content %}<{{ m.reasoning_content "
      "}}>{% endif %}{{ m.content }}{% for c in m.tool_calls or [] %}({{ c.name }}){% endfor %}|"
      "{% endfor %}",
      "t");
  CHECK(answers(chat, R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "zq",
                           "reasoning_content": "so zq it is"}])") == Texts{"<so zq it is>zq|"});
  CHECK(answers(chat, R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "",
                           "tool_calls": [{"name": "a"}]}, {"role": "tool", "content": "4"},
                          {"role": "assistant", "content": "four"}])") == Texts{"(a)|", "four|"});
  CHECK(answers(chat, R"([{"role": "assistant", "content": null, "tool_calls": [{"name": "t"}]}])")
            .size() == 1);
  const ChatTemplate strict(
      "{% for m in messages %}{% if m.role == 'tool' and not messages[loop.index0 - 1].tool_calls "
      "%}{{ raise_exception('a tool answers a call') }}{% endif %}[{{ m.role }}]{{ m.content }}"
      "{% for c in m.tool_calls or [] %}({{ c.name }}){% endfor %}|{% endfor %}",
      "t");
  CHECK(answers(strict, R"([{"role": "assistant", "content": "a", "tool_calls": [{"name": "f"}]},
                            {"role": "tool", "content": "4"},
                            {"role": "assistant", "content": "s"}])") == Texts{"a(f)|", "s|"});
}

TEST_CASE("chat templates: what ends a conversation behind the loop ends its last answer") {
  const SpecialTokens tokens = {{"eos_token", "</s>"}};
  const ChatTemplate blender(
      "{% for message in messages %}{% if message['role'] == 'user' %}{{ ' ' }}{% endif %}"
      "{{ message['content'] }}{% if not loop.last %}{{ '  ' }}{% endif %}{% endfor %}"
      "{{ eos_token }}",
      "t", tokens);
  CHECK(answers(blender, kTwoTurns)[1] == "d</s>");
  CHECK(blender.answer_end() == "</s>");
  CHECK(prompt(blender, kHi) == " hi  ");
  // It ends no answer if a question is last.
  CHECK(answers(blender, R"([{"role": "assistant", "content": "a"},
                             {"role": "user", "content": "b"}])") == Texts{"a  "});
  const ChatTemplate separated(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% if not loop.last %}|{% endif %}"
      "{% endfor %}{{ eos_token }}{% if add_generation_prompt %}[assistant]{% endif %}",
      "t", tokens);
  CHECK(answers(separated, talk("q", "a").c_str()) == Texts{"a</s>"});
  // A header behind the loop begins the next answer, and an answer that has ended stays as it is.
  const ChatTemplate asks(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]", "t");
  CHECK(answers(asks, talk("q", "a").c_str()) == Texts{"a"});
  CHECK(prompt(asks, kHi) == "[user]hi[assistant]");
  CHECK(asks.answer_end() == "");
  const ChatTemplate twice(
      "{% for m in messages %}[{{ m.role }}]{{ m.content }}|{% endfor %}{{ eos_token }}", "t",
      tokens);
  CHECK(answers(twice, talk("q", "a").c_str()) == Texts{"a|"});
}

TEST_CASE(
    "chat templates: without a generation prompt, answers are asked for as they are written") {
  CHECK(prompt(ChatTemplate(kChatMl, "t"), kHi) ==
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n");
  const ChatTemplate vicuna(kVicuna, "t");
  CHECK_FALSE(vicuna.has_prompt());
  CHECK(prompt(vicuna, kHi) == "USER: hi ASSISTANT: ");
  CHECK(vicuna.answer_end() == "</s>");
  // A template that wants no answer behind what is asked is rendered as it is.
  const ChatTemplate one(
      "{% if messages | length > 1 %}{{ raise_exception('one') }}{% endif %}"
      "{{ messages[0].content }}:",
      "t");
  CHECK(prompt(one, kHi) == "hi:");
  CHECK_FALSE(one.answer_end().has_value());
}

TEST_CASE("chat templates: marks of what a model writes are obeyed") {
  const auto marked = [](const std::string& turn, const std::string& behind = "") {
    return ChatTemplate("{% for m in messages %}{% if m.role == 'assistant' %}" + turn +
                            "{% else %}[u]{{ m.content }}|{% endif %}{% endfor %}" + behind,
                        "t");
  };
  const std::string asks = "{% if add_generation_prompt %}[a]{% endif %}";
  const ChatTemplate planned =
      marked("[a]plan: {% generation %}{{ m.content }}|{% endgeneration %}#", asks);
  CHECK(answers(planned, kTwoTurns) == Texts{" b |", "d|"});
  CHECK(planned.answer_end() == "|");
  // What a generation is asked with does not count.
  CHECK(answers(marked("{% generation %}[a]{{ m.content }}|{% endgeneration %}", asks),
                kTwoTurns) == Texts{" b |", "d|"});
  // Without a prompt, generation begins where a mark does.
  const ChatTemplate bare = marked("[a]{% generation %}{{ m.content }}|{% endgeneration %}");
  CHECK(answers(bare, kTwoTurns) == Texts{" b |", "d|"});
  CHECK(prompt(bare, kHi) == "[u]hi|[a]");
  CHECK(answers(marked("[a]{% generation %}{{ m.content }}{% endgeneration %}#"
                       "{% generation %}|{% endgeneration %}",
                       asks),
                talk("q", "a").c_str()) == Texts{"a", "|"});
  // The place of a mark within a macro is not known. It does not count.
  CHECK(answers(ChatTemplate("{% macro say(m) %}[{{ m.role }}]{% generation %}{{ m.content }}"
                             "{% endgeneration %}|{% endmacro %}"
                             "{% for m in messages %}{{ say(m) }}{% endfor %}",
                             "t"),
                talk("q", "a").c_str()) == Texts{"a|"});
}

TEST_CASE("chat templates: messages that a template does not write are errors") {
  const ChatTemplate knows(
      "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}{% elif m.role == "
      "'assistant' "
      "%}A{{ m.content }}{% endif %}{% endfor %}",
      "x.jinja");
  fails(
      "\"x.jinja\": expected a template that writes each message, but it writes nothing of message "
      "1, whose role is \"critic\"",
      [&] {
        answers(knows, R"([{"role": "user", "content": "a"}, {"role": "critic", "content": "?"},
                             {"role": "assistant", "content": "b"}])");
      });
  fails("writes nothing of message 0, whose role is \"system\"",
        [&] { answers(knows, R"([{"role": "system", "content": "zzz"}])"); });
  const ChatTemplate raises("{{ raise_exception('only users') }}", "x.jinja");
  fails("\"x.jinja\", line 1: the template says: only users", [&] { answers(raises, "[]"); });
  const ChatTemplate twice(
      "{% for m in messages %}{{ m.content }}{% endfor %}{% for m in messages %}{{ m.content }}"
      "{% endfor %}",
      "t");
  fails("writes message 0 2 times",
        [&] { answers(twice, R"([{"role": "assistant", "content": "a"}])"); });
}

TEST_CASE("chat templates: files of a folder") {
  const TemporaryFolder folder;
  CHECK_FALSE(ChatTemplate::of_folder(folder.path()).has_value());
  folder.write("tokenizer_config.json",
               R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>",
                   "chat_template": [{"name": "tool_use", "template": "t"},
                                     {"name": "default", "template": "{{ bos_token }}x"}]})");
  const auto chat = ChatTemplate::of_folder(folder.path());
  REQUIRE(chat.has_value());
  CHECK(chat->render({OrderedJson::array(), OrderedJson()}, false) == "<s>x");
  CHECK(special_tokens(folder.path()) ==
        SpecialTokens{{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  const std::string config =
      R"({"chat_template": [{"name": 5}, {"name": "default", "template": 7}]})";
  const TemporaryFolder numbers;
  numbers.write("tokenizer_config.json", config);
  fails(
      "tokenizer_config.json\", chat_template: expected a text as the template named default, got "
      "7",
      [&] { ChatTemplate::of_folder(numbers.path()); });
  folder.write("chat_template.jinja", "{{ eos_token }}{{ strftime_now('%d %b %Y') }}\n");
  CHECK(ChatTemplate::of_folder(folder.path())
            ->render({OrderedJson::array(), OrderedJson()}, false) == "</s>26 Jul 2024");
  folder.write("chat_template.jinja", "a\n{% for %}");
  fails("chat_template.jinja\", line 2: expected a name",
        [&] { ChatTemplate::of_folder(folder.path()); });
  folder.write("tokenizer_config.json", R"({"eos_token": 5})");
  fails(
      "tokenizer_config.json\", eos_token: expected a text, or an object with a text as content, "
      "got 5",
      [&] { special_tokens(folder.path()); });
  folder.write("tokenizer_config.json", "[");
  fails("expected JSON", [&] { ChatTemplate::of_folder(folder.path()); });
}

}  // namespace
}  // namespace frugal::data
