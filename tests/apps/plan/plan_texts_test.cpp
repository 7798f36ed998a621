// `frugal plan` of texts beside real steps: a batch is as long as its longest sample.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

struct Peaks {
  int64_t planned, trained;
};

// The peak of a row of the plan, and the peak of a training, with the same arguments.
Peaks peaks_of(const std::string& arguments, const std::string& out) {
  const Ran trained = frugal("train " + arguments + " --quiet --overwrite --out " + out),
            planned = frugal("plan --json " + arguments);
  REQUIRE_MESSAGE(trained.status == 0, trained.err);
  REQUIRE_MESSAGE(planned.status == 0, planned.err);
  const auto peak = [](const Json& memory) { return memory.at("peak_bytes").get<int64_t>(); };
  Peaks peaks{0, peak(Json::parse(read_file(out + "/summary.json")).at("memory"))};
  const Json plan = Json::parse(planned.out);
  for (const Json& row : plan.at("levels"))
    if (row.at("name") == "this config") peaks.planned = peak(row.at("memory"));
  return peaks;
}

void check_close(const Peaks& peaks) {
  CAPTURE(peaks.planned);
  CAPTURE(peaks.trained);
  const double ratio = static_cast<double>(peaks.planned) / static_cast<double>(peaks.trained);
  CHECK(ratio > 0.98);
  CHECK(ratio < 1.02);
}

TEST_CASE("a plan of texts has the largest batch of the data, not rows of data.max_length") {
  const TempFolder folder;
  // The second step has the largest batch, and the state that the first one has made.
  const std::string config = std::string(FRUGAL_CONFIGS) +
                             "/lora_sft.json --set data.dir=" + FRUGAL_CONFIGS +
                             "/lora_sft --set train.steps=2 --set threads=2";
  for (const char* more : {"", " --set data.join=true --set data.max_length=200",
                           " --set data.batch_size=4 --set train.gradient_accumulation=3"}) {
    CAPTURE(more);
    check_close(peaks_of(config + more, folder / "run"));
  }
  // Sentences of all lengths beside labels, of which an evaluation has the longest.
  const auto lines = [](int from, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += R"({"text": "a)";
      for (int word = 0; word < from + i; ++word) text += " b";
      text += fmt::format("\", \"label\": {}}}\n", i % 2);
    }
    return text;
  };
  std::filesystem::create_directory(folder / "lines");
  write_file(folder / "lines/train.jsonl", lines(1, 24));
  write_file(folder / "lines/test.jsonl", lines(60, 4));
  write_file(folder / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n");
  const std::string path = folder / "c.json";
  write_file(path, fmt::format(R"({{"model": {{"name": "bert_tiny", "layers": 4}}, "threads": 2,
      "data": {{"name": "jsonl", "dir": "{}", "vocabulary": "{}", "max_length": 128,
                "batch_size": 8, "test_batch_size": 64}},
      "train": {{"steps": 2}}, "compression": {{"advanced": {{"min_elements": 512}}}}}})",
                               folder / "lines", folder / "vocab.txt"));
  check_close(peaks_of(path, folder / "sentences"));
  const Ran shown = frugal("plan " + path);
  CHECK(has(shown.out,
            "bert_tiny, batch 8 of [27], cpu f32\n"
            "the largest training batch has rows of 27 tokens, data.max_length is "
            "128\n"));
  CHECK(Json::parse(frugal("plan --json " + path).out).at("tokens") == 27);
}

}  // namespace
}  // namespace frugal::apps
