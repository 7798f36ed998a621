// Texts and their labels from files of JSON lines: an object in each line.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/json_strict.h"

namespace frugal::data {

// Calls f(number, line) for each line that is not empty; numbers begin at 1. Plain or gzipped.
// Errors: an unreadable file; a line longer than 64 MiB.
void for_json_lines(const std::string& path,
                    const std::function<void(int64_t, std::string_view)>& f);
// Throws "[jsonl] PATH, line LINE: MESSAGE".
[[noreturn]] void fail_in_line(const std::string& path, int64_t line, const std::string& message);
[[noreturn]] void fail_in_line(const std::string& path, int64_t line, const JsonError& error);

struct JsonLinesFields {
  std::string text = "text";  // field of the text
  std::string second = {};    // field of a second text; empty: there is none
  std::string label = {};     // field of the label; empty: none is read
};

struct JsonLine {
  std::string text, second;
  std::string label;  // a text, or a whole number or boolean as JSON has it
};

// Empty lines are skipped; other fields are not looked at. Plain or gzipped. Errors (with file and
// line): a line that is not a JSON object, or longer than 64 MiB; a field that is not there, with a
// list of those that are; a text that is not a string; a label that is none of the above; a file
// without lines. OptionError ("text", "second_text" or "target"): the first object lacks the field.
std::vector<JsonLine> read_json_lines(const std::string& path, const JsonLinesFields& fields);

// The labels that occur, sorted: by number where all are whole numbers.
std::vector<std::string> sorted_labels(const std::vector<JsonLine>& lines);

}  // namespace frugal::data
