#include "data/formats/json_strict.h"

#include <doctest/doctest.h>

using namespace frugal;
using namespace frugal::data;
using Json = nlohmann::ordered_json;

namespace {

void rejects_json(const std::string& text, const std::string& place, const char* what) {
  CAPTURE(text.substr(0, 100));
  try {
    parse_json<Json>(text);
    FAIL_CHECK("was accepted");
  } catch (const JsonError& error) {
    CHECK(error.place() == place);
    CHECK_MESSAGE(std::string(error.what()).find(what) != std::string::npos, error.what());
    CHECK(std::string(error.what()).size() < 600);
  }
  CHECK_THROWS_AS(parse_json<nlohmann::json>(text), JsonError);
}

}  // namespace

TEST_CASE("documents are read as the library reads them") {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5", "\"a\\u00fc\"", "[]", "{}",
        R"([1,[2,[]],{"a":{}}])", R"( {"b": 1, "a": [null, {"c": "d"}], "": -1e3} )"}) {
    CAPTURE(text);
    CHECK(parse_json<Json>(text) == Json::parse(text));
    CHECK(parse_json<Json>(text).dump() == Json::parse(text).dump());
    CHECK(parse_json<nlohmann::json>(text) == nlohmann::json::parse(text));
  }
}

TEST_CASE("what the library passes over in silence is an error") {
  rejects_json(R"({"a": 1, "a": 2})", "a", "each key once");
  rejects_json(R"({"a": {"b": [0, {"c": 1, "c": 1}]}})", "a.b[1].c", "each key once");
  rejects_json(R"({"a": 1, "\u0061": 2})", "a", "each key once");
  CHECK_NOTHROW(parse_json<Json>(R"({"a": {"a": 1}, "b": {"a": 1}})"));
  rejects_json(std::string("{}\0{\"a\": 1}", 11), "", "a NUL byte at offset 2 (line 1)");
  rejects_json(std::string("{\n\"a\": \"x\0y\"}", 13), "", "(line 2)");
  rejects_json(R"({"a": {"b": "x\u0000y"}})", "a.b", "NUL");
  rejects_json(R"({"x\u0000": 1})", "", "NUL");
  rejects_json("{} {}", "", "syntax error");
  rejects_json("{}x", "", "syntax error");
  rejects_json("", "", "unexpected end of input");
  rejects_json("{\"\xff\": 1}", "", "UTF-8");
  rejects_json("1e999", "", "");
  rejects_json(std::string(65, '[') + std::string(65, ']'), "", "at most 64 levels");
  CHECK_NOTHROW(parse_json<Json>(std::string(64, '[') + std::string(64, ']')));
  rejects_json(std::string(1 << 20, '['), "", "at most 64 levels");
  rejects_json("[\"" + std::string(1 << 20, 'x') + "\n\"]", "",
               "syntax error");  // not echoed whole
}

TEST_CASE("many keys take linear time") {  // the library's own insertion would take minutes
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":{}";
  CHECK(parse_json<Json>(text + "}").size() == 200000);
}
