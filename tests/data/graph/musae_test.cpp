#include "data/graph/musae.h"

#include <doctest/doctest.h>

#include "data/dataset.h"
#include "data/formats/table.h"
#include "tests/data/files.h"
#include "tests/data/warnings.h"

using namespace frugal;
using namespace frugal::data;
using namespace frugal_test;

namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows rows_of(const std::string& content) {
  const TemporaryFolder folder;
  TableReader csv("csv", folder.write("a.csv", content));
  Rows rows;
  while (csv.next()) rows.emplace_back(csv.fields().begin(), csv.fields().end());
  return rows;
}

struct MusaeFiles {
  std::string edges = "id_1,id_2\n0,1\n1,0\n2,2\n2,1\n";
  std::string features = R"({"1": [5, 0, 5], "0": [], "2": [1]})";
  std::string target = "id,page_name,page_type\n1,\"b, \"\"x\"\"\",web\n0,a,art\n2,c,web\n";

  GraphData open(const GraphOptions& options = {}) const {
    const TemporaryFolder folder;
    folder.write("small_edges.csv", edges);
    folder.write("small_features.json", features);
    folder.write("small_target.csv", target);
    return open_musae(folder.path(), "small", options);
  }
};

void rejects_musae(const MusaeFiles& files, const char* message) {
  CHECK_THROWS_WITH_AS(files.open(), doctest::Contains(message), Error);
}

}  // namespace

TEST_CASE("tables with quotes, line ends and gzip are read") {
  CHECK(rows_of("").empty());
  CHECK(rows_of("a,b\n1,2") == Rows{{"a", "b"}, {"1", "2"}});
  CHECK(rows_of("a,,\r\n\n,\n") == Rows{{"a", "", ""}, {"", ""}});
  CHECK(rows_of("\"a,\"\"b\"\"\nc\",d\n\"\",x\"y\n") == Rows{{"a,\"b\"\nc", "d"}, {"", "x\"y"}});
  CHECK(rows_of("x\"\"y\n\"z\",\"\"\n\"\"\"\"\"\",w\"\"\n") ==
        Rows{{"x\"\"y"}, {"z", ""}, {"\"\"", "w\"\""}});
  CHECK(rows_of(gzip("a,b\n") + gzip("\"c\",d\n")) == Rows{{"a", "b"}, {"c", "d"}});
  // Records across the pieces in which a file is read.
  std::string long_file;
  Rows expected;
  for (int i = 0; i < 40; ++i) {
    const std::string field(20000, static_cast<char>('a' + i % 26));
    long_file += i % 2 == 0 ? field : "\"" + field + "\"\"\n\"";
    long_file += ",1\n";
    expected.push_back({i % 2 == 0 ? field : field + "\"\n", "1"});
  }
  CHECK(rows_of(long_file) == expected);
  CHECK(rows_of(gzip(long_file)) == expected);
}

TEST_CASE("tables that lie are refused, with the line") {
  CHECK_THROWS_WITH_AS(rows_of("a\n\"b\nc\n"), doctest::Contains("line 2"), Error);
  CHECK_THROWS_WITH_AS(rows_of("a\n\"b\nc\"\n\"d\"e,\n"), doctest::Contains("line 4"), Error);
  CHECK_THROWS_WITH_AS(rows_of("\""), doctest::Contains("each quote to be closed"), Error);
  const std::string most((8 << 20) - 2, 'x');
  CHECK(rows_of("a\n\"" + most + "\"\n") == Rows{{"a"}, {most}});
  for (const char* end : {"x\"\n", "x"})
    CHECK_THROWS_WITH_AS(rows_of("a\n\"" + most + end), doctest::Contains("line 2"), Error);
  const std::string packed = gzip("a,b\n1,2\n");
  CHECK_THROWS_WITH_AS(rows_of(packed.substr(0, packed.size() - 3)), doctest::Contains("truncated"),
                       Error);
  CHECK_THROWS_WITH_AS(rows_of(packed + "x"), doctest::Contains("trailing bytes"), Error);

  const TemporaryFolder folder;
  TableReader csv("csv", folder.write("a.csv", "7,x,1e-60,nan,1e60,-2.5,\n"));
  REQUIRE(csv.next());
  CHECK(csv.integer(0, 7, 8) == 7);
  CHECK_THROWS_WITH_AS(csv.integer(0, 0, 7), doctest::Contains("[0, 7) in field 1, got \"7\""),
                       Error);
  CHECK_THROWS_WITH_AS(csv.integer(1, 0, 7), doctest::Contains("got \"x\""), Error);
  CHECK_THROWS_WITH_AS(csv.integer(6, 0, 7), doctest::Contains("line 1"), Error);
  CHECK_THROWS_WITH_AS(csv.integer(9, 0, 7), doctest::Contains("field 10"), Error);
  CHECK_THROWS_WITH_AS(csv.real(1), doctest::Contains("a number in field 2"), Error);
  CHECK(csv.real(2) == 0);
  CHECK(std::isnan(csv.real(3)));
  CHECK(std::isinf(csv.real(4)));
  CHECK(csv.real(5) == -2.5f);
  CHECK_THROWS_WITH_AS(csv.expect_fields(2), doctest::Contains("2 fields, got 7"), Error);
}

TEST_CASE("a small MUSAE graph") {
  const GraphData graph = MusaeFiles().open({false, false});
  CHECK(graph.nodes == 3);
  CHECK(graph.classes == 2);
  CHECK(graph.y.to_vector() == std::vector<double>{0, 1, 1});
  CHECK(graph.edge_index.to_vector() == std::vector<double>{0, 1, 1, 2, 2, 1, 0, 2, 1, 2});
  CHECK(graph.x.to_vector() ==
        std::vector<double>{0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0});
  const GraphData sparse = MusaeFiles().open({true, true});
  CHECK(sparse.x_row_ptr.to_vector() == std::vector<double>{0, 0, 2, 3});
  CHECK(sparse.x_value.to_vector() == std::vector<double>{0.5, 0.5, 1});
}

TEST_CASE("the edges of a MUSAE graph begin with the names of their columns") {
  MusaeFiles files;
  files.edges = "0,1\n1,2\n";
  rejects_musae(files,
                "small_edges.csv\", line 1: expected names of columns such as id_1,id_2, got "
                "the numbers 0,1");
  files.edges = "from,to\n0,1\n";
  CHECK(files.open().edges() == 2);
}

TEST_CASE("an empty cell is an unknown label of a MUSAE graph") {
  MusaeFiles files;
  files.target = "id,page_name,page_type\n1,b,web\n0,a,art\n2,c, \n";
  const Warnings warnings;
  const GraphData graph = files.open();
  CHECK(graph.classes == 2);
  CHECK(graph.y.to_vector() == std::vector<double>{0, 1, kIgnored});
  CHECK(warnings.has("1 node has no label, the first in line 4"));
  files.target = "id,page_type\n1,\n0,\n2,\n";
  rejects_musae(files, "\"page_type\", got empty cells alone");
}

TEST_CASE("a column that is hardly the label of a MUSAE graph") {
  MusaeFiles files;
  const Warnings warnings;
  files.open();
  CHECK(warnings.text().empty());
  files.target = "id,page_type,page_name\n1,web,b\n0,art,a\n2,web,c\n";
  rejects_musae(files,
                "the columns are id, page_type, page_name, and the label has to be the last");
  files.target = "id,page_type,page_name\n1,web,b\n0,art,b\n2,web,b\n";
  CHECK(files.open().classes == 1);
  CHECK(warnings.has("the label is the last column, \"page_name\", and not \"page_type\""));
  files.target = "id,name\n1,b\n0,a\n2,a\n3,c\n4,d\n";
  CHECK(files.open().classes == 4);
  CHECK(warnings.has("3 of 5 nodes have one that no other node has"));
}

TEST_CASE("MUSAE files that disagree are refused") {
  const auto edges = [](const char* text, const char* message) {
    MusaeFiles files;
    files.edges = text;
    rejects_musae(files, message);
  };
  edges("id_1,id_2\n0,1\n0,3\n", "integer in [0, 3) in field 2, got \"3\"");
  edges("id_1,id_2\n0,1\n0,3\n", "line 3");
  edges("id_1,id_2\n0,-1\n", "got \"-1\"");
  edges("id_1,id_2\n0\n", "2 fields, got 1");
  edges("", "a table of id_1,id_2");
  const auto features = [](const char* text, const char* message) {
    MusaeFiles files;
    files.features = text;
    rejects_musae(files, message);
  };
  features(R"({"3": []})", "got \"3\"");
  features(R"({"x": []})", "nodes in [0, 3)");
  features(R"({"1": [0], "1": [1]})", "one list of columns for node 1");
  features(R"({"1": 0})", "one list of columns");
  features(R"({"1": [-1]})", "got -1 at node 1");
  features(R"({"1": [16777216]})", "columns in [0, 16777216)");
  features(R"({"1": [65536]})", "columns in [0, 65536)");  // one number would make the matrix
  {
    MusaeFiles files;
    files.features = R"({"1": [0]}#{"1": [5]})";
    files.features[10] = '\0';
    rejects_musae(files, "at offset 10: a NUL byte");
  }
  features(R"({"1": [0.5]})", "got 0.5 at \"1\"");
  features(R"({"1": ["a"]})", "the text \"a\"");
  features(R"({"1": [[0]]})", "a list elsewhere");
  features(R"({"1": {"2": 1}})", "an object inside");
  features(R"({"1": [null]})", "null");
  features(R"({"1": [18446744073709551615]})", "beyond 64 bits");
  features("[1]", "a list elsewhere");
  features("3", "a number");
  features(R"({"1": [0)", "invalid JSON");
  features("", "invalid JSON");
  features(std::string(100000, '[').c_str(), "a list elsewhere");
  const auto target = [](const char* text, const char* message) {
    MusaeFiles files;
    files.target = text;
    rejects_musae(files, message);
  };
  target("id,page_type\n0,a\n0,b\n1,c\n", "each node of 0 to 2 once");
  target("id,page_type\n0,a\n1,b\n3,c\n", "got 3 in record 3");
  target("id,page_type\n0,a\n1,b,c\n", "2 fields, got 3");
  target("node,page_type\n0,a\n", "a table of id");
  CHECK_THROWS_WITH_AS(open_musae("/nonexistent", "facebook"), doctest::Contains("facebook_edges"),
                       Error);
}

TEST_CASE("the Facebook graph in FRUGAL_DATA") {
  const char* root = std::getenv("FRUGAL_DATA");
  const std::string folder = std::string(root == nullptr ? "" : root) + "/graphs/musae-facebook";
  if (root == nullptr || !std::filesystem::exists(folder)) {
    MESSAGE("skipped: no graphs/musae-facebook in $FRUGAL_DATA");
    return;
  }
  TableReader csv("csv", folder + "/facebook_edges.csv");
  int64_t lines = -1, loops = 0;
  while (csv.next()) {
    ++lines;
    loops += csv.fields()[0] == csv.fields()[1];
  }
  CHECK(lines == 171002);
  const GraphData graph = open_musae(root, "facebook", {true, true});
  CHECK(graph.nodes == 22470);
  CHECK(graph.features == 4714);
  CHECK(graph.classes == 4);
  CHECK(graph.edges() == 2 * (lines - loops) + loops);
  CHECK(graph.x_value.numel() == 314583);
}
