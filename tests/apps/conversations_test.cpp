// Conversations from files to a run, and from its folder to evaluations and texts.
#include <doctest/doctest.h>

#include <filesystem>

#include "data/formats/json_strict.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// A model's folder with the characters that the lines below have, and a template.
void write_model_folder(const std::string& folder) {
  std::filesystem::create_directories(folder);
  nlohmann::json vocabulary = {{"<s>", 0}, {"</s>", 1}, {"<u>", 2}, {"<a>", 3}, {"\n", 4}};
  for (char c = 'a'; c <= 'z'; ++c) vocabulary[std::string(1, c)] = 5 + c - 'a';
  vocabulary[" "] = 31;
  vocabulary["?"] = 32;
  nlohmann::json added = nlohmann::json::array();
  for (const char* token : {"<s>", "</s>", "<u>", "<a>"})
    added.push_back({{"id", vocabulary[token]}, {"content", token}, {"special", true}});
  const nlohmann::json tokenizer = {
      {"added_tokens", added},
      {"decoder", {{"type", "Fuse"}}},
      {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
  write_file(folder + "/tokenizer.json", tokenizer.dump());
  write_file(folder + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "</s>"})");
  write_file(folder + "/chat_template.jinja",
             "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}"
             "{{ '<u>' if m.role == 'user' else '<a>' }}{{ m.content }}\n{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}<a>{% endif %}");
}

std::string talk(const std::string& question, const std::string& answer) {
  return R"({"messages": [{"role": "user", "content": ")" + question +
         R"("}, {"role": "assistant", "content": ")" + answer + "\"}]}\n";
}

constexpr const char* kModel =
    " --set model.name=gpt2 --set model.layers=1 --set model.width=16 --set model.heads=2"
    " --set model.max_positions=32 --set data.name=conversations --set data.max_length=24"
    " --set data.batch_size=4 --set train.epochs=2 --set optim.name=adamw --set optim.lr=0.01";

TEST_CASE("conversations: a run, its folder, evaluations and texts") {
  const TempFolder folder;
  write_model_folder(folder / "model");
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += i % 2 == 0 ? talk("what is it?", "a cat") : talk("who?", "the big dog");
  write_file(folder / "talks.jsonl", lines);
  write_file(folder / "config.json", "{}");
  const std::string keys = fmt::format("{} --set data.dir={} --set data.vocabulary={}", kModel,
                                       folder / "talks.jsonl", folder / "model");
  const Ran ran =
      frugal(fmt::format("train {}{} --out {}", folder / "config.json", keys, folder / "run"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "20 samples of"));
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    CHECK(read_file(folder / "run/" + name) == read_file(folder / "model/" + name));
  // What the run has kept of the tokenizer is no obstacle to going on, nor to starting anew.
  for (const char* how : {"--resume", "--overwrite"}) {
    const Ran again = frugal(
        fmt::format("train {}{} --out {} {}", folder / "config.json", keys, folder / "run", how));
    CHECK_MESSAGE(again.status == 0, again.err);
  }
  // A measured batch is as long as its longest sample, which has 13 and 7 tokens, and not as
  // data.max_length. Inputs are one less.
  const Ran bench = frugal(
      fmt::format("bench step {}{} --only --repeats 1 --json", folder / "config.json", keys));
  REQUIRE_MESSAGE(bench.status == 0, bench.err);
  CHECK(data::parse_json<nlohmann::json>(bench.out).at("sample") == nlohmann::json::array({19}));
  // A content that is no text is named with its file and line.
  write_file(folder / "talks.jsonl",
             talk("who?", "me") + R"({"messages": [{"role": "user", "content": 5}]})");
  const Ran number = frugal(fmt::format("train {}{}", folder / "config.json", keys));
  CHECK(number.status == 1);
  CHECK(has(number.err, "talks.jsonl\", line 2: expected a text as \"messages[0].content\""));
  write_file(folder / "talks.jsonl", lines);
  // The run's folder is enough.
  std::filesystem::remove_all(folder / "model");
  const Ran judged = frugal(fmt::format("eval {} --json", folder / "run"));
  REQUIRE_MESSAGE(judged.status == 0, judged.err);
  const auto loss = data::parse_json<nlohmann::json>(judged.out).at("loss").get<double>();
  CHECK(loss < 3.4);  // log of 33 tokens is 3.5
  const Ran text = frugal(
      fmt::format("generate {} --prompt '<u>who?' --tokens 4 --temperature 0", folder / "run"));
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(text.out.starts_with("<u>who?"));
}

TEST_CASE("conversations: questions with choices follow the run's template") {
  const TempFolder folder;
  write_model_folder(folder / "model");
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += i % 2 == 0 ? talk("what is it?", "a cat") : talk("who?", "the dog");
  write_file(folder / "talks.jsonl", lines);
  write_file(folder / "config.json", "{}");
  const Ran ran = frugal(fmt::format(
      "train {}{} --set data.dir={} --set data.vocabulary={} --set train.epochs=20 "
      "--set data.join=true --set model.dropout=0 --out {}",
      folder / "config.json", kModel, folder / "talks.jsonl", folder / "model", folder / "run"));
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const auto eval = [&](const std::string& text, const char* more = "") {
    write_file(folder / "q.jsonl", text);
    return frugal(
        fmt::format("eval {} --data {} --json {}", folder / "run", folder / "q.jsonl", more));
  };
  const auto asked = [](const std::string& role, const std::string& what,
                        const std::string& choices) {
    return R"({"messages": [{"role": ")" + role + R"(", "content": ")" + what +
           R"("}], "choices": )" + choices + "}\n";
  };
  const Ran both = eval(asked("user", "what is it?", R"(["a cat", "the dog"], "answer": "a cat")") +
                        asked("user", "who?", R"(["a cat", "the dog"], "answer": "B")") +
                        R"({"prompt": "<u>who?\n<a>", "choices": ["the dog", "me"], "answer": 0})");
  REQUIRE_MESSAGE(both.status == 0, both.err);
  const auto json = data::parse_json<nlohmann::json>(both.out);
  CHECK(json.at("accuracy") == 1);
  CHECK(json.at("questions") == 3);
  const Ran answered = eval(asked("assistant", "a cat", R"(["a", "b"], "answer": 0)"));
  CHECK(answered.status == 1);
  CHECK(has(answered.err, "line 1: expected messages that end with one of the role user, got"));
  // A prompt that is too long loses its beginning, and the choices stay.
  const std::string lengthy =
      R"({"prompt": "aaaaaaaaaaaaaaaaaaaaaaa<u>who?\n<a>", "choices": ["me", "the dog"], "answer": 1})";
  const Ran refused = eval(lengthy);
  CHECK(refused.status == 1);
  CHECK(has(refused.err, "line 1: expected a prompt and a choice of at most 24 inputs"));
  const Ran cut = eval(lengthy, "--set data.truncate=true");
  REQUIRE_MESSAGE(cut.status == 0, cut.err);
  CHECK(has(cut.err, "because of data.max_length 24: 1 prompt\n"));
  CHECK(data::parse_json<nlohmann::json>(cut.out).at("accuracy") == 1);
  // Texts of such a file are all evaluated, one of them alone as well.
  const Ran text = eval(talk("who?", "the dog"));
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(data::parse_json<nlohmann::json>(text.out).at("samples") == 1);
}

TEST_CASE("conversations: samples that share rows give the losses of samples alone") {
  const TempFolder folder;
  write_model_folder(folder / "model");
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += i % 3 == 0 ? talk("what is it?", "a cat") : talk("who?", "me");
  write_file(folder / "talks.jsonl", lines);
  write_file(folder / "config.json", "{}");
  const auto train = [&](const char* more, const std::string& run) {
    return frugal(fmt::format(
        "train {}{} --set data.dir={} --set data.vocabulary={} --set "
        "model.dropout=0 --set model.attention_dropout=0 {} --out {}",
        folder / "config.json", kModel, folder / "talks.jsonl", folder / "model", more, run));
  };
  const Ran ran = train("--set data.join=true", folder / "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.err, "18 samples in 12 rows of at most 24 tokens"));
  const auto loss_of = [&](const std::string& more) {
    const Ran judged = frugal(fmt::format("eval {} --json {}", folder / "run", more));
    REQUIRE_MESSAGE(judged.status == 0, judged.err);
    return data::parse_json<nlohmann::json>(judged.out).at("loss").get<double>();
  };
  CHECK(loss_of("") == doctest::Approx(loss_of("--set data.join=false")).epsilon(1e-5));
  // Layers of a list do not keep samples apart.
  write_file(folder / "layers.json", fmt::format(R"({{"model": {{"name": "sequential",
      "modules": [{{"embedding": {{"embedding_dim": 16}}}}, {{"attention": {{"num_heads": 2, "is_causal": true}}}},
                  "linear"]}},
      "data": {{"name": "conversations", "dir": "{}", "vocabulary": "{}", "join": true}}}})",
                                                 folder / "talks.jsonl", folder / "model"));
  const Ran layers = frugal(fmt::format("train {}", folder / "layers.json"));
  CHECK(layers.status == 2);
  CHECK_MESSAGE(has(layers.err, "data.join: expected false for the network sequential"),
                layers.err);
}

TEST_CASE("conversations: what is wrong is named with file and line") {
  const TempFolder folder;
  write_model_folder(folder / "model");
  write_file(folder / "config.json", "{}");
  const auto train = [&](const std::string& lines, const std::string& more = "") {
    write_file(folder / "talks.jsonl", lines);
    std::filesystem::remove_all(folder / "run");
    return frugal(fmt::format("train {}{} --set data.dir={} --set data.vocabulary={} {} --out {}",
                              folder / "config.json", kModel, folder / "talks.jsonl",
                              folder / "model", more, folder / "run"));
  };
  const std::string good = talk("who?", "me"), lengthy = talk("who?", std::string(40, 'a'));
  const Ran cut = train(good + lengthy + good + good, "--set data.truncate=true");
  REQUIRE_MESSAGE(cut.status == 0, cut.err);
  CHECK(has(cut.err, "cut at data.max_length 24: 1 sample; left out without an answer: 0 samples"));
  const Ran longer = train(good + lengthy);
  CHECK(longer.status == 1);
  CHECK(has(longer.err, "talks.jsonl\", line 2: expected a sample of at most 24 inputs"));
  CHECK(has(longer.err, "got 47"));
  const Ran role = train(good + R"({"messages": [{"role": "critic", "content": "no"}]})");
  CHECK(role.status == 1);
  CHECK(has(role.err, "talks.jsonl\", line 2"));
  CHECK(has(role.err, "whose role is \"critic\""));
  // Its words are in the text, but another message says them.
  const Ran words =
      train(good + R"({"conversations": [{"from": "critic", "value": "e"}, )" +
            R"({"from": "human", "value": "who?"}, {"from": "gpt", "value": "me"}]})");
  CHECK(words.status == 1);
  CHECK(has(words.err, "nothing of message 0, whose role is \"critic\""));
  const Ran small = train(good + good, "--set model.vocab_size=32");
  CHECK(small.status == 2);
  CHECK(has(small.err,
            fmt::format("model.vocab_size: expected at least 33, the tokens of conversations with "
                        "the tokenizer of \"{}\", got 32",
                        folder / "model")));
  const Ran one = train(good);
  CHECK(one.status == 2);
  CHECK(has(one.err, "at least two samples"));
  CHECK(frugal(fmt::format("train {}{} --set data.dir={} --out {}", folder / "config.json", kModel,
                           folder / "talks.jsonl", folder / "run"))
            .status == 2);  // no tokenizer
  std::filesystem::create_directories(folder / "parts");
  for (const char* part : {"parts/train.jsonl", "parts/test.jsonl"})
    write_file(folder / part, good + good);
  const Ran parts = frugal(
      fmt::format("train {}{} --set data.dir={} --set data.vocabulary={} --set data.validation=0.5",
                  folder / "config.json", kModel, folder / "parts", folder / "model"));
  CHECK(parts.status == 2);
  CHECK(has(parts.err, "data.validation: expected 0.1, the default, since"));
  const Ran nowhere = frugal(
      fmt::format("train {}{} --set data.dir={}", folder / "config.json", kModel, folder / "none"));
  CHECK(nowhere.status == 2);
  CHECK(has(nowhere.err, "data.dir: expected a file or a folder"));
  const Ran no_tokenizer = frugal(fmt::format("train {}{} --set data.dir={}",
                                              folder / "config.json", kModel, folder / "parts"));
  CHECK(no_tokenizer.status == 2);
  CHECK(has(no_tokenizer.err, "data.vocabulary: expected the folder of a model with a"));
  CHECK(has(no_tokenizer.err, fmt::format("nor data.dir (\"{}\") has one", folder / "parts")));
  std::filesystem::remove(folder / "model/chat_template.jinja");
  const Ran no_template = train(good + good);
  CHECK(no_template.status == 1);
  CHECK(has(no_template.err, "talks.jsonl\", line 1: expected a chat template"));
  CHECK(has(no_template.err, "(data.vocabulary) has neither chat_template.jinja nor"));
  const Ran network = train(good + good, "--set model.name=bert_tiny");
  CHECK(network.status == 2);
}

// The largest batches come first, and the optimizer has its state in the second step. So what the
// first two steps take is what a run takes.
TEST_CASE("conversations: steps of other lengths do not raise the peak after the second step") {
  const TempFolder folder;
  write_model_folder(folder / "model");
  write_file(folder / "config.json", "{}");
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    const auto letters = static_cast<size_t>(i % 12 == 7 ? 62 : 1 + i * 37 % 50);
    lines += R"({"text": ")" + std::string(letters, 'a') + "\"}\n";
  }
  write_file(folder / "texts.jsonl", lines);
  for (const int parts : {1, 3}) {
    CAPTURE(parts);
    const auto peak_of = [&](int steps) {
      const std::string out = folder / fmt::format("run_{}_{}", parts, steps);
      const Ran ran = frugal(fmt::format(
          "train {}{} --set model.max_positions=64 --set data.dir={} --set data.vocabulary={} "
          "--set "
          "data.max_length=64 --set data.batch_size=1 --set train.epochs=1 --set train.steps={} "
          "--set train.gradient_accumulation={} --set compression.bits=4 --out {}",
          folder / "config.json", kModel, folder / "texts.jsonl", folder / "model", steps, parts,
          out));
      REQUIRE_MESSAGE(ran.status == 0, ran.err);
      const auto summary = data::parse_json<nlohmann::json>(read_file(out + "/summary.json"));
      return summary.at("memory").at("peak_bytes").get<int64_t>();
    };
    const int64_t first = peak_of(2), all = peak_of(54 / parts);
    CHECK(static_cast<double>(all) <= 1.01 * static_cast<double>(first));
  }
}

}  // namespace
}  // namespace frugal::apps
