// `frugal generate`: how tokens are drawn, and where a text ends.
#include <doctest/doctest.h>

#include <filesystem>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {

TEST_CASE("generate: a text ends before the first of its stop texts") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 200; ++i) text += "abcd abce ";
  write_file(folder / "text.txt", text);
  write_file(folder / "config.json",
             R"({"model": {"name": "decoder", "layers": 1, "width": 16, "heads": 2,
                 "max_positions": 64},
                 "data": {"name": "text", "dir": ")" +
                 folder / "text.txt" + R"(", "max_length": 16, "batch_size": 8},
                 "optim": {"name": "adamw", "lr": 0.02}, "train": {"steps": 40}})");
  const std::string run = folder / "run";
  const Ran trained = frugal("train " + folder / "config.json" + " --out " + run);
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  const auto made = [&](const std::string& arguments) {
    const Ran ran =
        frugal("generate " + run + " --prompt a --tokens 60 --temperature 0 " + arguments);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return ran.out;
  };
  const std::string whole = made("");
  REQUIRE(whole.size() == 62);  // the prompt, 60 characters and the end of the line
  const std::string stop = whole.substr(20, 3), other = whole.substr(24, 2);
  const size_t at = std::min(whole.find(stop, 1), whole.find(other, 1));
  CHECK(made("--stop '" + stop + "' --stop '" + other + "'") == whole.substr(0, at) + "\n");
  CHECK(made("--stop '" + whole.substr(55, 6) + "zz'") == whole);  // only its beginning comes
  CHECK(made("--stop ''") == whole);
  CHECK(made("--top-p 0.5 --min-p 0.1 --top-k 3") == whole);  // nothing is drawn
  CHECK(made("--repetition-penalty 100") != whole);
}

namespace {

// The run in folder/run of a small decoder that knows 8 times `line`, with these files of
// configs/lora_sft, and with a chat template of its own if there is one.
std::string learned(const TempFolder& folder, const std::string& line,
                    const std::vector<std::string>& files, const std::string& chat_template = "") {
  const std::string to = folder / "data/";
  std::filesystem::create_directories(to);
  for (const std::string& name : files)
    write_file(to + name, read_file(std::string(FRUGAL_CONFIGS) + "/lora_sft/" + name));
  if (!chat_template.empty()) write_file(to + "chat_template.jinja", chat_template);
  std::string lines;
  for (int i = 0; i < 8; ++i) lines += line + "\n";
  write_file(to + "train.jsonl", lines);
  write_file(to + "test.jsonl", lines);
  write_file(folder / "config.json", R"({"model": {"name": "decoder", "layers": 1, "width": 32,
      "heads": 2, "max_positions": 64}, "data": {"name": "conversations", "dir": ")" +
                                         to + R"(", "max_length": 63, "batch_size": 8},
      "optim": {"name": "adamw", "lr": 0.02}, "train": {"epochs": 60}})");
  const std::string run = folder / "run";
  const Ran trained = frugal("train " + folder / "config.json" + " --out " + run + " --quiet");
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  return run;
}

}  // namespace

TEST_CASE("generate --chat: messages are answered up to the end of a turn") {
  const TempFolder folder;
  const auto turns = [](const std::string& question, const std::string& answer) {
    return R"({"role": "user", "content": ")" + question +
           R"("}, {"role": "assistant", "content": ")" + answer + R"("})";
  };
  const std::string run =
      learned(folder, R"({"messages": [)" + turns("a", "yes") + ", " + turns("b", "no no") + "]}",
              {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"});
  const std::string command = "generate " + run + " --chat --temperature 0 --tokens 20 ";
  CHECK(frugal(command + "--prompt a").out == "yes\n");
  // The second answer depends on the first, which the template wrote with its end.
  write_file(folder / "input", "a\n\n  \nb\r\n");
  CHECK(frugal(command + "< " + folder / "input").out == "yes\nno no\n");
  // The network computes the beginning of the conversation once.
  const std::string told =
      run_shell("FRUGAL_LOG=debug " FRUGAL_BINARY " " + command + "< " + folder / "input").err;
  CHECK(has(told, "computes 4 of the 4 tokens"));
  CHECK(has(told, "computes 5 of the 12 tokens"));
  CHECK(frugal(command + "< /dev/null").out == "");
  CHECK(frugal("generate " + run + " --system be --prompt a").status == 2);
  const std::string past = frugal(command + "--prompt 'x" + std::string(400, 'y') + "'").err;
  CHECK(has(past, "and the network sees 64"));
}

TEST_CASE("generate --chat: a template without a generation prompt, whose end is behind its loop") {
  const TempFolder folder;
  const std::string turns =
                        "{% for m in messages %}{{ 'ask ' if m.role == 'user' else ' yes ' }}"
                        "{{ m.content }}{% endfor %}",
                    line = R"({"messages": [{"role": "user", "content": "a"},
                               {"role": "assistant", "content": "yes"}]})";
  std::string one_line = line;
  std::erase(one_line, '\n');
  const std::string run = learned(folder, one_line, {"tokenizer.json", "tokenizer_config.json"},
                                  turns + "{{ eos_token }}");
  CHECK(frugal("generate " + run + " --chat --temperature 0 --tokens 9 --prompt a").out == "yes\n");
  const std::string again = "train " + (folder / "config.json") + " --set train.epochs=1";
  const char* warning =
      "the chat template ends no answer with tokens that count, so the network does";
  CHECK_FALSE(has(frugal(again).err, warning));
  write_file(folder / "data/chat_template.jinja", turns);
  const std::string told = frugal(again).err;
  const size_t at = told.find(warning);
  REQUIRE_MESSAGE(at != std::string::npos, told);
  CHECK(told.find(warning, at + 1) == std::string::npos);
}

TEST_CASE("generate: a text ends where the model ends it; --chat wants a template") {
  const TempFolder folder;
  const std::string run = learned(folder, R"({"prompt": "a ", "completion": "yes"})",
                                  {"tokenizer.json", "tokenizer_config.json"});
  CHECK(frugal("generate " + run + " --temperature 0 --prompt 'a '").out == "a yes\n");
  const std::string past =
      frugal("generate " + run + " --tokens 2 --prompt '" + std::string(70, 'a') + "'").err;
  CHECK(has(past, "the prompt has 70 tokens, and the network sees 64"));
  const Ran chat = frugal("generate " + run + " --chat --prompt a");
  CHECK(chat.status == 2);
  CHECK(has(chat.err, "chat_template.jinja"));
}

// Each byte of the text is a token. A text that ends within a character keeps those before it.
TEST_CASE("generate: characters of several tokens are written whole") {
  const TempFolder folder;
  Json vocabulary = {{"<unk>", 0}, {"a", 257}};
  for (int byte = 0; byte < 256; ++byte) vocabulary[fmt::format("<0x{:02X}>", byte)] = 1 + byte;
  const Json tokenizer = {
      {"added_tokens", Json::array()},
      {"decoder",
       {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"byte_fallback", true},
        {"vocab", vocabulary},
        {"merges", Json::array()}}}};
  std::filesystem::create_directory(folder / "data");
  write_file(folder / "data/tokenizer.json", tokenizer.dump());
  const std::string run =
      learned(folder, R"({"prompt": "a", "completion": "\u65e5\u672c"})", {});  // 3 bytes each
  const std::string command = "generate " + run + " --prompt a --temperature 0 --tokens ";
  CHECK(frugal(command + "6").out == "a\u65e5\u672c\n");
  CHECK(frugal(command + "4").out == "a\u65e5\ufffd\n");
}

}  // namespace frugal::apps
