// `frugal eval --data`: questions with choices, and texts, from a file of JSON lines.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "data/formats/json_strict.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

using Line = nlohmann::json;

// A decoder of characters that has learned what a cat and a dog say.
std::string talking_run(const TempFolder& folder) {
  std::string lines;
  for (int i = 0; i < 150; ++i)
    lines += i % 2 == 0 ? "{\"text\": \"the cat says meow.\"}\n"
                        : "{\"text\": \"the dog says woof.\"}\n";
  write_file(folder / "talk.jsonl", lines);
  write_file(folder / "config.json",
             R"({"model": {"name": "decoder", "layers": 1, "width": 32, "heads": 2,
                 "max_positions": 64},
                 "data": {"name": "jsonl", "dir": ")" +
                 folder / "talk.jsonl" + R"(", "max_length": 40, "batch_size": 8},
                 "optim": {"name": "adamw", "lr": 0.01}, "train": {"steps": 150}})");
  const Ran ran = frugal("train " + folder / "config.json" + " --out " + folder / "run");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  std::filesystem::remove(folder / "talk.jsonl");  // the run's folder is enough
  return folder / "run";
}

Line eval_of(const std::string& run, const std::string& file, const std::string& more = "") {
  const Ran ran = frugal("eval " + run + " --data " + file + " --json " + more);
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return data::parse_json<Line>(ran.out);
}

Line question(const std::string& prompt, const std::vector<std::string>& choices,
              const Line& answer) {
  return {{"prompt", prompt}, {"choices", choices}, {"answer", answer}};
}

std::string in_lines(const std::vector<Line>& all) {
  std::string lines;
  for (const Line& one : all) lines += one.dump() + "\n";
  return lines;
}

TEST_CASE("multiple choice: the likelihoods are those of the choices alone") {
  const TempFolder folder;
  const std::string run = talking_run(folder), file = folder / "q.jsonl";
  const std::vector<Line> known = {
      question("the cat says ", {"woof.", "meow."}, 1),
      question("the dog says ", {"woof.", "meow."}, "A"),
      question("the dog", {" says meow.", " says woof."}, "says woof."),
      question("the ca", {"g", "o", "t"}, "C")};
  write_file(file, in_lines(known));
  const Line right = eval_of(run, file);
  CHECK(right.at("accuracy") == 1);
  CHECK(right.at("accuracy_by_bytes") == 1);
  CHECK(right.at("questions") == 4);
  CHECK(right.at("choices") == 9);
  CHECK(has(right.at("weights").get<std::string>(), "last.safetensors"));
  const Ran shown = frugal("eval " + run + " --data " + file);
  CHECK(shown.out == "accuracy 100.00 %  accuracy_by_bytes 100.00 %  questions 4  choices 9\n");

  // Choices of several lengths. A completion alone has the loss of a token of it, since characters
  // have no token that ends a text.
  const std::vector<Line> all = {question("the cat says ", {"m", "meow.", "meow.\n\nthe"}, 0),
                                 question("the dog says ", {"meow.", "w", "woof.\n\nthe "}, 0),
                                 question("the ", {"cat says meow.", "ow", "dog"}, 0),
                                 question("t", {"t", "he cat"}, 0)};
  std::vector<std::vector<double>> sums, shares;
  for (const Line& one : all) {
    sums.emplace_back();
    shares.emplace_back();
    for (const Line& choice : one.at("choices")) {
      const auto text = choice.get<std::string>();
      const Line line = {{"prompt", one.at("prompt")}, {"completion", text}};
      write_file(folder / "one.jsonl", line.dump());
      const Line alone = eval_of(run, folder / "one.jsonl");
      CHECK(alone.at("samples") == 1);
      const double loss = alone.at("loss").get<double>();
      sums.back().push_back(-loss * static_cast<double>(text.size()));
      shares.back().push_back(-loss);
    }
  }
  const auto best = [](const std::vector<double>& of) {
    return std::max_element(of.begin(), of.end()) - of.begin();
  };
  int64_t apart = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<Line> one = {all[i]};
    one[0]["answer"] = best(sums[i]);
    write_file(file, in_lines(one));
    const Line by_sum = eval_of(run, file);
    CHECK(by_sum.at("accuracy") == 1);
    const bool same = best(sums[i]) == best(shares[i]);
    apart += same ? 0 : 1;
    CHECK(by_sum.at("accuracy_by_bytes") == (same ? 1 : 0));
  }
  CHECK(apart > 0);
  // All in one file, in batches of any size.
  write_file(file, in_lines(all));
  double by_sum = 0, by_bytes = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    by_sum += best(sums[i]) == 0 ? 0.25 : 0;
    by_bytes += best(shares[i]) == 0 ? 0.25 : 0;
  }
  for (const char* size : {"1", "2", "64"}) {
    const Line found = eval_of(run, file, std::string("--set data.test_batch_size=") + size);
    CHECK(found.at("accuracy") == by_sum);
    CHECK(found.at("accuracy_by_bytes") == by_bytes);
  }
}

TEST_CASE("multiple choice: what is wrong is named with file and line") {
  const TempFolder folder;
  const std::string run = talking_run(folder), file = folder / "q.jsonl";
  const Line good = question("the cat says ", {"woof.", "meow."}, 1);
  const auto eval = [&](const std::string& line, const std::string& more = "") {
    write_file(file, good.dump() + "\n" + line + "\n");
    return frugal("eval " + run + " --data " + file + " " + more);
  };
  const Ran all_files = frugal("eval " + run + " --data " + run);
  CHECK(all_files.status == 2);
  CHECK(has(all_files.err, "--data: expected a file of JSON lines, got the folder"));
  const std::string lengthy = "the cat says meow. the cat says meow. the ";
  struct Wrong {
    Line line;
    const char* message;
  };
  const Wrong all[] = {
      {{{"prompt", "the "}, {"answer", 0}},
       "expected choices, a list of texts, got answer, prompt"},
      {question("the ", {"cat"}, 0), "expected a list of 2 to 1000 texts as \"choices\""},
      {question("the ", {"cat", ""}, 0),
       "expected choices that are texts of at least one character"},
      {question("the ", {"cat", "dog"}, 2), "a number from 0 to 1, a letter from \"A\" to \"B\""},
      {question("the ", {"cat", "dog"}, -1), "got -1"},
      {question("the ", {"cat", "dog"}, "C"), "got \"C\""},
      {question("the ", {"cat", "cat"}, "cat"), "those of the numbers 0 and 1"},
      {question("", {"cat", "dog"}, 0), "expected a prompt with a token of its own before"},
      {question("the ", {"cat", "zebra"}, 0), "expected characters of the alphabet, got U+007A"},
      {question(lengthy, {"cat", "dog says"}, 0),
       "a prompt and a choice of at most 40 inputs (data.max_length), got 49"},
      {{{"choices", {"a", "b"}}, {"answer", 0}}, "expected a prompt or messages beside choices"},
      {{{"prompt", "the "}, {"choices", {"a", "b"}}}, "expected an answer beside choices"},
      {{{"messages", {{{"role", "user"}, {"content", "who?"}}}},
        {"choices", {"a", "b"}},
        {"answer", 0}},
       "expected a chat template for conversations"},
      {{{"text", "the cat"}}, "expected a question, with choices and an answer, as in the lines"},
  };
  for (const Wrong& wrong : all) {
    const Ran ran = eval(wrong.line.dump());
    CHECK(ran.status == 1);
    CHECK(has(ran.err, "q.jsonl\", line 2: "));
    CHECK(has(ran.err, wrong.message));
  }
  CHECK(has(eval("{").err, "q.jsonl\", line 2: "));
  write_file(file, "{\"text\": \"the cat\"}\n\n" + good.dump() + "\n");
  const Ran mixed = frugal("eval " + run + " --data " + file);
  CHECK(mixed.status == 1);
  CHECK(has(mixed.err, "q.jsonl\", line 3: expected a text as in the lines before, got answer"));
  write_file(file, "\n");
  CHECK(has(frugal("eval " + run + " --data " + file).err, "expected lines with a JSON object"));

  // Rotary positions may be more than those of training.
  const Ran longer =
      eval(question(lengthy, {"dog says", "cat"}, 0).dump(), "--set data.max_length=60");
  CHECK_MESSAGE(longer.status == 0, longer.err);

  write_file(file, good.dump() + "\n");
  const auto usage = [&](const std::string& arguments, const char* message) {
    const Ran ran = frugal("eval " + arguments);
    CHECK(ran.status == 2);
    CHECK(has(ran.err, message));
  };
  usage(run + " --split val --data " + file, "--split: expected none with --data");
  usage(folder / "config.json" + " --data " + file,
        "expected the folder of a run, which holds config.json");
  usage(run + " --data " + folder / "none.jsonl --tta flip", "--tta: expected none");
  CHECK(frugal("eval " + run + " --data " + folder / "none.jsonl").status == 2);
  write_file(folder / "rows.json", kTinyConfig);
  REQUIRE(frugal("train " + folder / "rows.json" + " --set train.epochs=1 --out " + folder / "rows")
              .status == 0);
  usage(folder / "rows" + " --data " + file,
        "--data: expected the run of a language model and text, got mlp and random");
}

}  // namespace
}  // namespace frugal::apps
