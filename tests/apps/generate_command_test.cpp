// `frugal generate`: how tokens are drawn, and where a text ends.
#include <doctest/doctest.h>

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

}  // namespace frugal::apps
