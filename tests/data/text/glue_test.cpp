#include "data/text/glue.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "core/error.h"
#include "core/parallel.h"
#include "data/formats/file_bytes.h"
#include "data/formats/table.h"
#include "data/text/wordpiece.h"
#include "tests/data/files.h"

namespace frugal::data {
namespace {

using frugal_test::gzip;
using frugal_test::TemporaryFolder;
using Fields = std::vector<std::string>;

Fields fields_of(const TableReader& table) {
  return {table.fields().begin(), table.fields().end()};
}

std::vector<Fields> read_all(TableReader& table) {
  std::vector<Fields> rows;
  while (table.next()) rows.push_back(fields_of(table));
  return rows;
}

TEST_CASE("tables of tab-separated fields") {
  const TemporaryFolder folder;
  const auto open = [&](const std::string& text) {
    return TableReader("glue", folder.write("t.tsv", text), TableKind::tsv);
  };
  const auto with_header = [&](const std::string& text) {
    auto table = std::make_unique<TableReader>("glue", folder.write("t.tsv", text), TableKind::tsv);
    table->read_header();
    return table;
  };
  for (const bool zipped : {false, true}) {
    const std::string text = "\xef\xbb\xbfq\ta b\r\n1\t\r\n\t x \n";
    const auto table = with_header(zipped ? gzip(text) : text);
    CHECK(table->header() == Fields{"q", "a b"});
    CHECK(table->column("a b") == 1);
    CHECK_THROWS_WITH_AS(table->column("c"), doctest::Contains("a column \"c\""), Error);
    CHECK(read_all(*table) == std::vector<Fields>{{"1", ""}, {"", " x "}});
    CHECK(table->line() == 3);
  }
  // Quotes are text, balanced or not.
  TableReader literal = open("\"a\"\tb\"\n\"\"\"\t'\n\"x,\ty\n");
  CHECK(read_all(literal) == std::vector<Fields>{{"\"a\"", "b\""}, {"\"\"\"", "'"}, {"\"x,", "y"}});
  TableReader short_line = open("a\tb\n1\t2\n3\n");
  for (int i = 0; i < 3; ++i) CHECK(short_line.next());
  CHECK_THROWS_WITH_AS(short_line.expect_fields(2), doctest::Contains("2 fields, got 1 in"), Error);
  CHECK_THROWS_WITH_AS(short_line.expect_fields(2), doctest::Contains("line 3"), Error);
  TableReader blank = open("a\tb\n\n1\t2\n");
  CHECK(read_all(blank) == std::vector<Fields>{{"a", "b"}, {""}, {"1", "2"}});
  CHECK_THROWS_WITH_AS(with_header(""), doctest::Contains("an empty file"), Error);
  CHECK_THROWS_WITH_AS(with_header("a\ta\n"), doctest::Contains("\"a\" twice"), Error);
  CHECK_THROWS_AS(TableReader("glue", folder / "none", TableKind::tsv), Error);
  const std::string most(1 << 20, 'x');
  TableReader longest = open("a\n" + most + "\n" + most);
  CHECK(read_all(longest) == std::vector<Fields>{{"a"}, {most}, {most}});
  for (const char* end : {"x\n", "x", ""}) {  // also a line that goes on and on
    TableReader endless = open("a\n" + most + (*end == '\0' ? most : end));
    CHECK(endless.next());
    CHECK_THROWS_WITH_AS(endless.next(), doctest::Contains("at most 1048576 bytes"), Error);
  }
  CHECK_THROWS_WITH_AS(with_header("a\x1b[2J\ta\x1b[2J\n"),
                       doctest::Contains("\"a\\x1b[2J\" twice"), Error);
  CHECK_THROWS_WITH_AS(TableReader("glue", folder.path(), TableKind::tsv),
                       doctest::Contains("regular file"), Error);
}

TEST_CASE("the files of the tasks") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(folder / path).parent_path());
    folder.write(path, text);
  };
  const auto read = [&](const char* task, GlueSplit split = GlueSplit::train) {
    return read_glue(folder.path(), task, split);
  };
  CHECK(glue_tasks() == Fields{"SST-2", "CoLA", "MRPC", "RTE", "QNLI", "MNLI"});
  CHECK_THROWS_WITH_AS(glue_task("SST"), doctest::Contains("one of SST-2, CoLA"), Error);
  CHECK_THROWS_WITH_AS(read("SST-2"), doctest::Contains("expected train.tsv of SST-2"), Error);

  write("SST-2/train.tsv", "sentence\tlabel\n\"unbalanced , \t1\nbad\t0\n");
  auto sst = read("SST-2");
  REQUIRE(sst.size() == 2);
  CHECK(sst[0].first == "\"unbalanced , ");
  CHECK(sst[0].label == 1);
  CHECK(sst[1].label == 0);
  CHECK(read_glue(folder / "SST-2", "SST-2", GlueSplit::train).size() == 2);
  write("SST-2/dev.tsv", "sentence\tlabel\nx\t2\n");
  CHECK_THROWS_WITH_AS(read("SST-2", GlueSplit::dev),
                       doctest::Contains("a label among 0, 1 in line 2 of"), Error);
  CHECK_THROWS_WITH_AS(read("SST-2", GlueSplit::dev_mismatched), doctest::Contains("expected MNLI"),
                       Error);
  write("SST-2/dev.tsv", "sentence\tlabel\n");
  CHECK_THROWS_WITH_AS(read("SST-2", GlueSplit::dev), doctest::Contains("expected examples"),
                       Error);
  write("SST-2/dev.tsv", "text\tlabel\nx\t1\n");
  CHECK_THROWS_WITH_AS(read("SST-2", GlueSplit::dev), doctest::Contains("a column \"sentence\""),
                       Error);

  write("CoLA/train.tsv", "gj04\t1\t\tFirst.\ngj04\t0\t*\tSecond the.\n");  // no header
  const auto cola = read("CoLA");
  REQUIRE(cola.size() == 2);
  CHECK(cola[1].first == "Second the.");
  CHECK(cola[1].label == 0);
  write("CoLA/dev.tsv", "gj04\t1\tFirst.\n");
  CHECK_THROWS_WITH_AS(read("CoLA", GlueSplit::dev), doctest::Contains("4 fields"), Error);

  write("glue/RTE/train.tsv",
        "index\tsentence1\tsentence2\tlabel\n0\ta\tb\tnot_entailment\n1\tc\td\tentailment\n");
  const auto rte = read("RTE");
  REQUIRE(rte.size() == 2);
  CHECK(rte[0].second == "b");
  CHECK((rte[0].label == 1 && rte[1].label == 0));
  write("QNLI/dev.tsv", "index\tquestion\tsentence\tlabel\n0\twho\tme\tentailment\n");
  CHECK(read("QNLI", GlueSplit::dev)[0].first == "who");
  const std::string head =
      "index\tpromptID\tpairID\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n";
  write("MNLI/train.tsv", head + "0\t1\t2\tg\tx\ty\tneutral\tcontradiction\n");
  write("MNLI/dev_matched.tsv", head + "0\t1\t2\tg\tx\ty\tneutral\tneutral\n");
  write("MNLI/dev_mismatched.tsv", head + "0\t1\t2\tg\tx\ty\tneutral\t-\n");
  CHECK(read("MNLI")[0].label == 2);
  CHECK(read("MNLI", GlueSplit::dev)[0].label == 1);
  CHECK_THROWS_WITH_AS(read("MNLI", GlueSplit::dev_mismatched),
                       doctest::Contains("entailment, neutral, contradiction in line 2"), Error);

  const std::string mrpc =
      "\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
      "1\t1\t2\ta \" b\tc\r\n0\t3\t4\td\te\r\n1\t2\t1\tf\tg\r\n";
  write("MRPC/train.tsv", mrpc);
  CHECK(read("MRPC").size() == 3);
  // Microsoft's file and GLUE's list of pairs, in this order of ids.
  write("MRPC/msr_paraphrase_train.txt", mrpc);
  write("MRPC/dev_ids.tsv", "2\t1\n");
  const auto train = read("MRPC"), dev = read("MRPC", GlueSplit::dev);
  CHECK((train.size() == 2 && dev.size() == 1));
  CHECK(train[0].first == "a \" b");
  CHECK(dev[0].second == "g");
  write("MRPC/dev_ids.tsv", "2\t1\n5\t6\n");
  CHECK_THROWS_WITH_AS(read("MRPC"), doctest::Contains("got 1 of 2"), Error);
}

TEST_CASE("texts of GLUE's files are UTF-8") {
  const TemporaryFolder folder;
  const auto read = [&](const char* task, const std::string& text) {
    folder.write("train.tsv", text);
    return read_glue(folder.path(), task, GlueSplit::train);
  };
  CHECK(read("SST-2", "sentence\tlabel\ncaf\xc3\xa9\t1\n")[0].first == "caf\xc3\xa9");
  CHECK_THROWS_WITH_AS(
      read("SST-2", "sentence\tlabel\nfine\t0\ncaf\xe9\t1\n"),
      doctest::Contains(
          "train.tsv\", line 3, column \"sentence\": expected UTF-8, got the byte e9"),
      Error);
  CHECK_THROWS_WITH_AS(
      read("RTE", "index\tsentence1\tsentence2\tlabel\n0\ta\t\x93hi\x94\tentailment\n"),
      doctest::Contains("line 2, column \"sentence2\": expected UTF-8, got the byte 93"), Error);
}

TEST_CASE("examples become sequences") {
  const WordPiece tokenizer(Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b"}, "a list"));
  const std::vector<GlueExample> examples{{"a a b", "b", 1}, {"", "", 0}};
  const auto single = encode_glue(examples, glue_task("SST-2"), tokenizer, 4);
  CHECK(single[0].ids == TokenIds{2, 4, 4, 3});
  CHECK(single[0].second == 4);
  CHECK(single[0].label == 1);
  CHECK(single[1].ids == TokenIds{2, 3});
  const auto pairs = encode_glue(examples, glue_task("RTE"), tokenizer, 6);
  CHECK(pairs[0].ids == TokenIds{2, 4, 4, 3, 5, 3});
  CHECK(pairs[0].second == 4);
  CHECK(pairs[1].ids == TokenIds{2, 3, 3});
  CHECK_THROWS_AS(encode_glue(examples, glue_task("RTE"), tokenizer, 2), Error);
}

TEST_CASE("GLUE in FRUGAL_DATA") {
  const char* root = std::getenv("FRUGAL_DATA");
  if (root == nullptr || !is_file(std::string(root) + "/glue/SST-2/train.tsv")) {
    MESSAGE("skipped: no glue in $FRUGAL_DATA");
    return;
  }
  const auto count = [&](const char* task, GlueSplit split) {
    return read_glue(root, task, split).size();
  };
  CHECK(count("SST-2", GlueSplit::train) == 67349);
  CHECK(count("SST-2", GlueSplit::dev) == 872);
  CHECK(count("CoLA", GlueSplit::train) == 8551);
  CHECK(count("CoLA", GlueSplit::dev) == 1043);
  CHECK(count("MRPC", GlueSplit::train) == 3668);
  CHECK(count("MRPC", GlueSplit::dev) == 408);
  CHECK(count("RTE", GlueSplit::train) == 2490);
  CHECK(count("RTE", GlueSplit::dev) == 277);
  const auto dev = read_glue(root, "SST-2", GlueSplit::dev);
  CHECK(std::count_if(dev.begin(), dev.end(), [](const GlueExample& e) { return e.label == 1; }) ==
        444);
}

}  // namespace
}  // namespace frugal::data
