#include "apps/cli/progress.h"

#include <doctest/doctest.h>
#include <sys/ioctl.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

ProgressLine line() {
  ProgressLine line;
  line.epoch = 3, line.epochs = 164;
  line.step = 1173, line.steps = 64124;
  line.loss = 1.23456, line.accuracy = 0.5432;
  line.unit = "tokens", line.units_per_second = 1234.5;
  line.memory_now = 45 << 20, line.memory_peak = 50 << 20;
  line.bits = 4.318;
  line.seconds_left = 3723;
  return line;
}

}  // namespace

TEST_CASE("progress: units, and the time left on every width") {
  CHECK(progress_text(line()) ==
        "epoch 3/164  step 1173/64124  loss 1.2346  acc 54.32%  1234 tokens/s  mem 45.0 MiB  peak "
        "50.0 MiB  4.32 bits  1:02:03 left");
  for (int64_t columns = 36; columns <= 200; ++columns) {
    const std::string text = progress_text(line(), columns);
    CAPTURE(text);
    CHECK(static_cast<int64_t>(text.size()) <= columns);
    CHECK(has(text, "step 1173/64124"));
    CHECK(text.ends_with("1:02:03 left"));
  }
  CHECK(has(progress_text(line(), 79), "loss 1.2346"));
  CHECK(has(progress_text(line(), 79), "tokens/s"));
  CHECK(has(progress_text(line(), 46), "tokens/s"));
  CHECK(progress_text(line(), 40) == "step 1173/64124  1:02:03 left");
  CHECK(progress_text(line(), 80) ==
        "epoch 3/164  step 1173/64124  loss 1.2346  1234 tokens/s  1:02:03 left");
  CHECK(progress_text(line(), 120) ==
        "epoch 3/164  step 1173/64124  loss 1.2346  acc 54.32%  1234 tokens/s  mem 45.0 MiB  4.32 "
        "bits  1:02:03 left");
  CHECK(progress_text(line(), 180).starts_with("[...."));
  CHECK(progress_text(line(), 5).size() == 5);
  ProgressLine slow = line();
  slow.units_per_second = 0.257;
  CHECK(has(progress_text(slow), "0.26 tokens/s"));
}

TEST_CASE("progress: what is not known is left out") {
  ProgressLine first = line();
  first.units_per_second = first.bits = 0;
  CHECK(progress_text(first) ==
        "epoch 3/164  step 1173/64124  loss 1.2346  acc 54.32%  mem 45.0 MiB  peak 50.0 MiB");
  ProgressLine numbers = line();
  numbers.accuracy.reset();
  numbers.metric = "r2";
  CHECK(lacks(progress_text(numbers), "acc"));
  CHECK(lacks(progress_text(numbers), "r2"));
  numbers.measured = 0.51234;
  CHECK(has(progress_text(numbers), "loss 1.2346  r2 0.5123  1234 tokens/s"));
  CHECK(has(progress_text(numbers, 88), "r2 0.5123"));
  CHECK(lacks(progress_text(numbers, 70), "r2"));
}

TEST_CASE("--quiet leaves the summary alone") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string run = "train " + folder / "c.json" + " --set train.steps=4 ";
  CHECK_FALSE(frugal(run).err.empty());
  const Ran quiet = frugal(run + "--quiet");
  REQUIRE(quiet.status == 0);
  CHECK(quiet.err.empty());
  CHECK(has(quiet.out, "activation memory"));
  const Ran wrong = frugal(run + "--quiet --set train.steps=-1");
  CHECK(wrong.status == 2);
  CHECK(has(wrong.err, "train.steps"));
}

namespace {

// A bare container may have none.
bool has_terminals() {
  const int main = posix_openpt(O_RDWR | O_NOCTTY);
  if (main < 0) return false;
  const bool works = grantpt(main) == 0 && unlockpt(main) == 0 && ptsname(main) != nullptr &&
                     access(ptsname(main), R_OK | W_OK) == 0;
  close(main);
  return works;
}

// What the binary writes to a terminal of so many columns. Where `later` is not 0, the terminal has
// `later` columns from the first rate on, and the run is ended when a line was drawn again.
std::string on_terminal(const std::string& arguments, int columns, int later = 0,
                        const char* term = "xterm") {
  const int main = posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(main >= 0);
  REQUIRE(grantpt(main) == 0);
  REQUIRE(unlockpt(main) == 0);
  const int side = open(ptsname(main), O_RDWR | O_NOCTTY);
  REQUIRE(side >= 0);
  const auto resize = [&](int to) {
    winsize size{};
    size.ws_row = 24;
    size.ws_col = static_cast<unsigned short>(to);
    REQUIRE(ioctl(main, TIOCSWINSZ, &size) == 0);
  };
  resize(columns);
  const std::string command = "exec " FRUGAL_BINARY " " + arguments + " >/dev/null";
  const pid_t child = fork();
  if (child == 0) {
    dup2(side, STDERR_FILENO);
    setenv("TERM", term, 1);
    unsetenv("FRUGAL_DATA");
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(99);
  }
  close(side);
  std::string text;
  char bytes[4096];
  bool resized = false;
  const auto latest = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  for (ssize_t got = 0; (got = ::read(main, bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(got));
    if (later != 0 && !resized && text.find(" left") != std::string::npos) {
      resize(later);
      resized = true;
    }
    const size_t after = text.find("\x1b[A");
    if (resized && after != std::string::npos && text.find(" left", after) != std::string::npos)
      kill(child, SIGTERM);
    if (std::chrono::steady_clock::now() > latest) kill(child, SIGKILL);
  }
  close(main);
  CHECK(wait_for(child) == (later != 0 ? 128 + SIGTERM : 0));
  return text;
}

// The texts between two moves to the beginning of a line.
std::vector<std::string> drawn(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    std::string line = text.substr(begin, end - begin);
    for (const char* code : {"\x1b[A", "\x1b[J"})
      for (size_t at = 0; (at = line.find(code)) != std::string::npos;) line.erase(at, 3);
    if (!line.empty()) lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("a terminal has one live line in its columns, also when these change" *
          doctest::skip(!has_terminals())) {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string run = "train " + folder / "c.json" + " --set train.epochs=8";
  const std::string live = on_terminal(run, 60);
  CHECK(has(live, "\r\x1b[J"));
  for (const std::string& line : drawn(live))
    if (has(line, "step ")) CHECK_MESSAGE(line.size() < 60, line);
  // No epoch ends before the run is told to end, so a line is there when the columns change.
  const std::string narrower = on_terminal(run + " --set data.train_samples=4000000", 110, 50);
  CHECK(has(narrower, "\x1b[A\r\x1b[J"));  // a line that was broken into rows
  bool wide = false, narrow = false;
  for (const std::string& line : drawn(narrower)) {
    if (line.find("step ") == std::string::npos) continue;
    wide = wide || line.size() >= 60;
    narrow = narrow || line.size() < 50;
  }
  CHECK(wide);
  CHECK(narrow);
  const std::string dumb = on_terminal(run, 80, 0, "dumb");
  CHECK(lacks(dumb, "\x1b"));
  CHECK(has(dumb, " bits  0:0"));
}

TEST_CASE("the summary counts what the data are made of") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const std::string steps = " --set train.steps=4 --set train.log_interval=2 --json ";
  const auto speed = [&](const std::string& sets) {
    const Ran ran = frugal("train " + folder / "c.json" + steps + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    Json found = Json::parse(ran.out)["speed"];
    CHECK(has(ran.err, found["unit"].get<std::string>() + "/s"));
    CHECK(has(ran.err, " left\n"));
    return found;
  };
  const std::string other = "--set data.shape=null --set data.name=";
  CHECK(speed("")["unit"] == "images");
  const Json tokens = speed(other +
                            "random_tokens --set model.name=bert_tiny --set "
                            "data.max_length=8 --set data.batch_size=4");
  CHECK(tokens["unit"] == "tokens");
  CHECK(tokens["units_per_second"].get<double>() ==
        doctest::Approx(8 * tokens["samples_per_second"].get<double>()));
  const Json nodes = speed(other +
                           "random_graph --set model.name=gcn --set data.nodes=60 --set "
                           "data.edges=90 --set data.features=8");
  CHECK(nodes["unit"] == "nodes");
}

TEST_CASE("compare: runs with different metrics, in any order") {
  const TempFolder folder;
  write_file(folder / "t.csv",
             "a,target\n1,2.5\n2,3.5\n3,4.5\n4,5.5\n5,6.5\n6,7.5\n7,8.5\n8,9.5\n");
  const std::string table =
      " --set train.steps=2 --set data.name=csv --set data.dir=" + folder / "t.csv" +
      " --set data.shape=null --set data.split=[0.5,0.25]";
  write_file(folder / "c.json", kTinyConfig);
  for (const std::string& run : {" --out " + folder / "classes --set train.steps=2",
                                 " --out " + folder / "values" + table}) {
    const Ran ran = frugal("train " + folder / "c.json" + run);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
  }
  for (const auto& [first, second] :
       {std::pair("classes", "values"), std::pair("values", "classes")}) {
    const Ran ran = frugal("compare " + folder / first + " " + folder / second);
    CHECK_MESSAGE(ran.status == 0, ran.err);
    CHECK(has(ran.out, "\ntest accuracy"));
    CHECK(has(ran.out, "\ntest r2"));
  }
}

TEST_CASE("compare: multiples of the first run, lengths, headings and differences") {
  const TempFolder folder;
  write_file(folder / "c.json", kTinyConfig);
  const auto train = [&](const std::string& name, const std::string& sets) {
    const Ran ran = frugal("train " + folder / "c.json" + " --out " + folder / name + sets);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    return Json::parse(read_file(folder / (name + "/summary.json")));
  };
  const Json a = train("a", " --set train.steps=4");
  const Json b = train("b", " --set train.steps=6 --set compression.level=L0");
  train("c", " --set train.steps=4 --set compression.memory_budget=3MiB");
  train("d", " --set train.steps=4 --set compression.policy=actnn --set compression.level=L3");
  const Ran ran = frugal("compare " + folder / "a" + " " + folder / "b" + "/ " + folder / "c" +
                         " " + folder / "d");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  for (const char* part : {"a: mlp, L1, recipes", "b: mlp, L0, recipes", "c: mlp, budget 3MiB",
                           "d: mlp, actnn L3", "note: the runs took 4 and 6 and 4 and 4 steps",
                           "compression.bits", "train.steps", "compression.memory_budget"})
    CHECK_MESSAGE(has(ran.out, part), part, "\n", ran.out);
  CHECK(lacks(ran.out, "data.batch_size"));
  // More memory is more than 1, as more time is.
  const auto times = [&](const char* key) {
    return fmt::format("({:.2f}x)",
                       b["memory"][key].get<double>() / a["memory"][key].get<double>());
  };
  CHECK(has(ran.out, times("activation_bytes")));
  CHECK(has(ran.out, times("peak_bytes")));
  CHECK(b["memory"]["activation_bytes"] > a["memory"]["activation_bytes"]);
  CHECK(has(ran.out, fmt::format("({:.2f}x)", b["speed"]["step_ms_median"].get<double>() /
                                                  a["speed"]["step_ms_median"].get<double>())));
  CHECK(has(ran.out, "whole process: with the program"));
}

}  // namespace frugal::apps
