// What a user may have meant: keys that other programs have, commands and options that are
// misspelt.
#include <doctest/doctest.h>

#include "tests/apps/run.h"

namespace frugal::apps {

TEST_CASE("keys by the names of other programs, misspelt commands and options get a suggestion") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string config = folder / "c.json";
  struct Case {
    std::string arguments, said;
  };
  const Case cases[] = {
      {"train " + config + " --set optim.learning_rate=0.1", "nearest valid key is 'optim.lr'"},
      {"train " + config + " --set learning_rate=0.1", "nearest valid key is 'optim.lr'"},
      {"train " + config + " --set optim.epochs=3", "nearest valid key is 'train.epochs'"},
      {"train " + config + " --set train.num-epochs=3", "nearest valid key is 'train.epochs'"},
      {"train " + config + " --set train.log_every=3", "nearest valid key is 'train.log_interval'"},
      {"train " + config + " --set train.batch=3", "nearest valid key is 'data.batch_size'"},
      {"train " + config + " --set optimizer=adam", "nearest valid key is 'optim.name'"},
      {"train " + config + " --epochs 3", "set by --set train.epochs=3"},
      {"train " + config + " --learning-rate=0.2", "set by --set optim.lr=0.2"},
      {"train " + config + " --batch-size 8", "set by --set data.batch_size=8"},
      {"train " + config + " --seed 8", "set by --set seed=8"},
      {"train " + config + " --reusme", "did you mean '--resume'"},
      {"trian " + config, "expected a command, got \"trian\"; did you mean 'train'?"},
      {"bench stpe", "expected a command of bench, got \"stpe\"; did you mean 'step'?"},
      {"data lsit", "did you mean 'list'?"},
      {"eval " + config + " --weight best", "did you mean '--weights'"},
      {"train " + config + " data.dir=x.csv", "error: expected --set before \"data.dir=x.csv\""},
      {"xyzzy", "expected a command, got \"xyzzy\"; see --help"},
      {"eval " + config + " --qqqqqq", "eval has no option \"--qqqqqq\"; see --help"}};
  for (const Case& each : cases) {
    CAPTURE(each.arguments);
    const Ran ran = frugal(each.arguments);
    CHECK(ran.status == 2);
    CHECK(has(ran.err, each.said));
  }
}

TEST_CASE("reproduce finds the tables of its program from another folder") {
  const Ran ran = shell("cd / && FRUGAL reproduce --out /nonexistent/none");
  CHECK_MESSAGE(ran.status == 0, ran.err);
  CHECK(has(ran.out, "actnn-memory"));
  const TempFolder folder;
  std::filesystem::create_directories(folder / "bin");
  std::filesystem::create_directories(folder / "share/frugal/configs/reproduce");
  std::filesystem::copy_file(FRUGAL_BINARY, folder / "bin/frugal");
  write_file(folder / "share/frugal/configs/reproduce/one.json", R"({
      "title": "One", "paper": "Nobody", "place": "table 1", "text": "What it shows.",
      "kind": "memory", "show": ["peak"], "base": {"model": {"name": "mlp"}, "device": "meta",
      "data": {"name": "random", "shape": [4, 4, 1]}},
      "scales": {"full": {"needs": {"device": "meta"}}}, "rows": [{"name": "first"}]})");
  const Ran installed =
      run_shell("cd / && " + (folder / "bin/frugal") + " reproduce --out /nonexistent/none");
  CHECK_MESSAGE(installed.status == 0, installed.err);
  CHECK(has(installed.out, "one: One"));
}

}  // namespace frugal::apps
