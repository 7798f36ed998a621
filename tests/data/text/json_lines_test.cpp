#include "data/text/json_lines.h"

#include <doctest/doctest.h>

#include "core/error.h"
#include "tests/data/files.h"

using namespace frugal;
using namespace frugal::data;
using frugal_test::TemporaryFolder;

TEST_CASE("json lines: texts, pairs and labels, plain or gzipped") {
  const TemporaryFolder folder;
  const std::string text =
      "\xef\xbb\xbf{\"text\": \"a \\u00e9\", \"label\": 2, \"other\": [1]}\n\n"
      "{\"text\": \"b\", \"label\": 10}\r\n{\"text\": \"\", \"label\": true}";
  for (const std::string& path :
       {folder.write("a.jsonl", text), folder.write("a.jsonl.gz", frugal_test::gzip(text))}) {
    const std::vector<JsonLine> lines = read_json_lines(path, {"text", "", "label"});
    REQUIRE(lines.size() == 3);
    CHECK(lines[0].text == "a \u00e9");
    CHECK(lines[1].label == "10");
    CHECK(lines[2].label == "true");
  }
  const std::string pairs = folder.write("b.jsonl", "{\"a\": \"x\", \"b\": \"y\"}\n");
  CHECK(read_json_lines(pairs, {"a", "b", ""})[0].second == "y");
  CHECK(sorted_labels({{"", "", "10"}, {"", "", "9"}, {"", "", "9"}}) ==
        std::vector<std::string>{"9", "10"});
  CHECK(sorted_labels({{"", "", "b"}, {"", "", "10"}}) == std::vector<std::string>{"10", "b"});
}

TEST_CASE("json lines: mistakes are named by file and line") {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& text, const char* message) {
    const std::string path = folder.write("bad.jsonl", text);
    CHECK_THROWS_WITH_AS(read_json_lines(path, {"text", "", "label"}), doctest::Contains(message),
                         Error);
  };
  refused("", "expected lines with a JSON object each, got none");
  refused("{\"text\": \"a\", \"label\": 1}\n{\"text\"}\n", "line 2: parse error at column 8: ");
  refused("[1]\n", "line 1: expected a JSON object, got [1]");
  const std::string good = "{\"text\": \"a\", \"label\": 1}\n";
  refused(good + "{\"sentence\": \"a\", \"label\": 1}\n",
          "line 2: expected a field \"text\", got label, sentence");
  refused(good + "{\"text\": \"a\"}\n", "line 2: expected a field \"label\", got text");
  // A field that the first line lacks has another name, so the option is wrong.
  const std::string path = folder.write("bad.jsonl", "{\"sentence\": \"a\"}\n");
  const std::pair<const char*, JsonLinesFields> wrong[] = {{"text", {"text", "", ""}},
                                                           {"second_text", {"sentence", "b", ""}},
                                                           {"target", {"sentence", "", "label"}}};
  for (const auto& [option, fields] : wrong) {
    try {
      read_json_lines(path, fields);
      FAIL("expected an error");
    } catch (const OptionError& e) {
      CHECK(e.path() == option);
      CHECK(e.reason().find("which has sentence, got") != std::string::npos);
    }
  }
  refused("{\"text\": 1, \"label\": 1}\n", "expected a text as \"text\", got 1");
  refused("{\"text\": \"a\", \"label\": 0.5}\n", "expected a label as \"label\"");
  refused("{\"text\": \"a\", \"label\": null}\n", "expected a label as \"label\"");
}
