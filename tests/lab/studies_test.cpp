// The studies of what compression does to activations and gradients, at their smallest.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "apps/json.h"
#include "compress/bounded/error_bounded.h"
#include "ops/precision.h"
#include "tests/apps/run.h"
#include "train/statistics.h"

namespace frugal::apps {

using namespace train;

namespace {

constexpr const char* kConfig = R"({
  "model": {"name": "mlp", "hidden": [64, 32]},
  "data": {"name": "random", "shape": [8, 8, 1], "classes": 4, "batch_size": 32,
           "train_samples": 256, "workers": 0},
  "compression": {"advanced": {"min_elements": 96}}, "threads": 1})";

Json study(const std::string& what, const std::string& options) {
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const std::string command = fmt::format("{} {} {}", what, folder / "c.json", options);
  const Ran text = frugal_lab(command);
  REQUIRE_MESSAGE(text.status == 0, text.err);
  CHECK(text.out.find("mlp, batch 32, after 2 steps") != std::string::npos);
  const Ran ran = frugal_lab(command + " --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  return Json::parse(ran.out);
}

}  // namespace

TEST_CASE("bounds: errors stay within what was allowed, and less strict bounds take less") {
  const Json document = study("bounds", "--train-steps 2 --repeats 2");
  CHECK(document["growth"] == 1);
  std::map<std::string, std::map<std::string, double>> bits;  // by bounds, by codec
  for (const Json& row : document["rows"]) {
    const std::string kind = row["bounds"], codec = row["codec"];
    CAPTURE(kind);
    CAPTURE(codec);
    bits[kind][codec] = row["bits"];
    CHECK(row["bits"].get<double>() < 32);
    // A whole gradient is off by no more than its parts are.
    CHECK(row["largest_error"] > 0);
    CHECK(row["largest_error"] <= row["largest_parameter_error"]);
    if (kind == "worst") CHECK(row["largest_parameter_error"] <= 1);
    if (kind == "expected") CHECK(row["largest_error"] <= 1.5);
  }
  std::set<std::string> all;
  for (const std::string& name : compress::error_bounded_names()) all.insert(name);
  const auto codecs = [&](const char* kind) {
    std::set<std::string> names;
    for (const auto& [name, width] : bits[kind]) names.insert(name);
    return names;
  };
  CHECK(codecs("worst") == all);
  all.erase("zfp");  // it does not round without bias
  CHECK(codecs("expected") == all);
  CHECK(codecs("published") == std::set<std::string>{"fixed", "fixed_z"});
  CHECK(bits.size() == 3);
  // Expected errors have half of the squared gradient that is seen (e = 1). Where a product does
  // not decide, that is half a bit more.
  for (const auto& [codec, width] : bits["expected"]) CHECK(width < bits["worst"][codec] + 0.5);
  CHECK(bits["expected"]["fixed"] < bits["worst"]["fixed"]);
  CHECK(bits["worst"]["fixed_z"] <= bits["worst"]["fixed"]);
}

TEST_CASE("sensitivity: samples measure about what whole batches do") {
  const Json document =
      study("sensitivity",
            "--train-steps 2 --references 2 --repeats 8 --set compression.gact.samples=16");
  CHECK(document["samples"] == 16);
  std::vector<double> reference, cheap;
  double elements = 0, bits = 0;
  for (const Json& tensor : document["tensors"]) {
    reference.push_back(tensor["reference"]);
    cheap.push_back(tensor["cheap"]);
    elements += tensor["elements"].get<double>();
    bits += tensor["elements"].get<double>() * tensor["bits"].get<double>();
  }
  REQUIRE(reference.size() >= 2);
  const Spread spread = ratio_spread(cheap, reference);
  CHECK(document["ratio"]["median"].get<double>() == doctest::Approx(spread.median));
  CHECK(document["ratio"]["low"].get<double>() == doctest::Approx(spread.low));
  CHECK(document["ratio"]["high"].get<double>() == doctest::Approx(spread.high));
  CHECK(document["rank_correlation"].get<double>() ==
        doctest::Approx(rank_correlation(reference, cheap)));
  CHECK(spread.median > 0.3);
  CHECK(spread.median < 3);
  CHECK(document["average_bits"].get<double>() == doctest::Approx(bits / elements));
  CHECK(document["average_bits"] <= 4);
  // The widths are those of least predicted variance.
  const Json &uniform = document["uniform"], &allocated = document["allocated"];
  CHECK(allocated["predicted_by_cheap"] <= uniform["predicted_by_cheap"]);
  for (const Json* row : {&uniform, &allocated}) {
    CHECK((*row)["predicted_by_reference"].get<double>() < 2 * (*row)["drawn"].get<double>());
    CHECK((*row)["predicted_by_reference"].get<double>() > 0.5 * (*row)["drawn"].get<double>());
  }
  const TempFolder folder;
  write_file(folder / "c.json", kConfig);
  const Ran few = frugal_lab("sensitivity " + folder / "c.json" + " --repeats 2");
  CHECK(few.status == 2);
  CHECK(few.err.find("at least 8 draws") != std::string::npos);
}

TEST_CASE("spmm counts both directions of every edge, and the loops") {
  const Ran ran = frugal_lab("spmm --nodes 100 --repeats 1 --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json report = Json::parse(ran.out);
  CHECK(report["entries"].get<double>() == doctest::Approx(2 * 688 + 100).epsilon(0.03));
  CHECK(report["results"].size() == 3);
  CHECK(frugal_lab("spmm --nodes 100 --repeats 1 --dtype bf16").status ==
        (ops::processor_multiplies_bf16() ? 0 : 2));
}

TEST_CASE("generate times a token, and says whose text is the same") {
  const Ran ran = frugal_lab("generate --layers 1 --tokens 3 --repeats 1 --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json report = Json::parse(ran.out);
  REQUIRE(report["results"].size() == 5);
  for (const Json& row : report["results"]) {
    CAPTURE(row.dump());
    CHECK(row["seconds"].get<double>() > 0);
    // Weights that are numbers of bf16 stay the same weights.
    if (row["weights"] == "f32" || row["weights"] == "numbers of bf16") CHECK(row["same_text"]);
  }
  CHECK(frugal_lab("generate --tokens 0").status == 2);
}

TEST_CASE("policies side by side: ranges that mix channels lose most, a budget gains most") {
  const TempFolder folder;
  write_file(folder / "c.json", R"({"model": {"name": "resnet20"}, "data": {"name": "random",
      "batch_size": 8, "shape": [8, 8, 3], "workers": 0, "train_samples": 256},
      "compression": {"advanced": {"min_elements": 256}}, "threads": 1})");
  const Ran ran = frugal_lab("gradient " + folder / "c.json" +
                             " --policies --train-steps 2 --batches 8 --repeats 8 --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  std::map<std::string, Json> rows;
  const Json document = Json::parse(ran.out);
  for (const Json& row : document["policies"]) {
    CHECK(row["bits"] == 2);
    CHECK(row["bits_per_element"] > 2);
    rows[row["policy"]] = row;
  }
  REQUIRE(rows.size() == 9);
  auto variance = [&](const char* name) {
    return rows.at(name)["variance"]["value"].get<double>();
  };
  const char* ours = "budget, the bytes of groups in a channel";
  CHECK(variance("a range per 65536 neighbours") > 1.5 * variance("a range per 256 neighbours"));
  CHECK(variance("a range per 256 neighbours") > variance("groups in a channel"));
  CHECK(variance("groups in a channel") > 4 * variance(ours));
  CHECK(rows[ours]["activation_bytes"] <= rows["groups in a channel"]["activation_bytes"]);
  CHECK(rows["acgc, e = 1"]["squared_bias"]["value"] > 0);  // rounds to nearest
}

TEST_CASE("tokens and chat: ids of texts, and the answers in conversations") {
  const TempFolder folder;
  write_file(
      folder / "tokenizer.json",
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
  write_file(folder / "texts.jsonl", "\"abba\"\n\"\"\n");
  const std::string tokens = fmt::format("tokens {} {} --out {}", folder / "tokenizer.json",
                                         folder / "texts.jsonl", folder / "ids");
  const Ran ran = frugal_lab(tokens + " --json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  CHECK(Json::parse(ran.out)["ids"] == 3);
  CHECK(Json::parse(ran.out)["bytes"] == 4);
  CHECK(read_file(folder / "ids") == R"({"ids":[2,1,0],"text":"ab b a"})"
                                     "\n"
                                     R"({"ids":[],"text":""})"
                                     "\n");
  CHECK(has(frugal_lab(tokens).out, "2 texts of 4 bytes become 3 ids"));
  CHECK(frugal_lab(fmt::format("tokens {} {}", folder / "none", folder / "texts.jsonl")).status ==
        1);
  write_file(folder / "chat_template.jinja",
             "{% for m in messages %}{{ m.role }}: {{ m.content }};{% endfor %}");
  write_file(folder / "talks.jsonl",
             R"({"messages": [{"role": "user", "content": "q"},
                              {"role": "assistant", "content": "r"}]})");
  std::string line = read_file(folder / "talks.jsonl");
  std::replace(line.begin(), line.end(), '\n', ' ');
  write_file(folder / "talks.jsonl", line);
  const Ran chat = frugal_lab(fmt::format("chat {} {}", folder / "", folder / "talks.jsonl"));
  REQUIRE_MESSAGE(chat.status == 0, chat.err);
  CHECK(Json::parse(chat.out)["text"] == "user: q;assistant: r;");
  CHECK(Json::parse(chat.out)["answers"][0] == "r;");
}

}  // namespace frugal::apps
