#include "data/text/json_lines.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/byte_stream.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongest = size_t{64} << 20;

// An object of a file and its line.
struct Place {
  const Json& object;
  const std::string& path;
  int64_t line;
  bool is_first;  // it is the first object of the file
};

const Json& field_of(const Place& place, const char* option, const std::string& name) {
  const auto& [object, path, line, is_first] = place;
  const auto found = object.find(name);
  if (found != object.end()) return *found;
  std::vector<std::string> names;
  for (const auto& [key, value] : object.items()) names.push_back(key);
  const std::string there =
      names.empty() ? "none" : printable(fmt::format("{}", fmt::join(names, ", ")), 300);
  if (is_first)
    throw OptionError(option, fmt::format("expected a field of {}, which has {}, got {}",
                                          in_quotes(path), there, in_quotes(name)));
  fail_in_line(path, line, fmt::format("expected a field {}, got {}", in_quotes(name), there));
}

std::string text_in(const Place& place, const char* option, const std::string& name) {
  const Json& value = field_of(place, option, name);
  if (!value.is_string())
    fail_in_line(
        place.path, place.line,
        fmt::format("expected a text as {}, got {}", in_quotes(name), printable(value.dump(), 80)));
  return value.get<std::string>();
}

std::string label_in(const Place& place, const char* option, const std::string& name) {
  const Json& value = field_of(place, option, name);
  if (value.is_string() && !value.get_ref<const std::string&>().empty())
    return value.get<std::string>();
  if (!value.is_number_integer() && !value.is_boolean())
    fail_in_line(place.path, place.line,
                 fmt::format("expected a label as {}, a text or a whole number, got {}",
                             in_quotes(name), printable(value.dump(), 80)));
  return value.dump();
}

bool is_whole(const std::string& text) {
  const size_t digits = text.starts_with('-') ? 1 : 0;
  return text.size() > digits && text.size() <= 18 &&
         std::all_of(text.begin() + static_cast<std::ptrdiff_t>(digits), text.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

void fail_in_line(const std::string& path, int64_t line, const std::string& message) {
  throw Error(fmt::format("[jsonl] {}, line {}: {}", in_quotes(path), line, message));
}

void fail_in_line(const std::string& path, int64_t line, const JsonError& error) {
  // The parser was given one line, which it counts as the first.
  constexpr std::string_view kPlace = "at line 1, column";
  std::string text = error.what();
  if (const size_t at = text.find(kPlace); at != std::string::npos)
    text.replace(at, kPlace.size(), "at column");
  if (!error.place().empty()) text = fmt::format("{}: {}", in_quotes(error.place()), text);
  fail_in_line(path, line, text);
}

void for_json_lines(const std::string& path,
                    const std::function<void(int64_t, std::string_view)>& f) {
  ByteStream stream("jsonl", path);
  std::string rest;
  int64_t number = 0;
  bool first = true;
  const auto give = [&](std::string_view line) {
    ++number;
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
    const size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return;
    if (first && line[begin] == '[')
      fail_in_line(path, number,
                   fmt::format("expected a JSON object, got {}; jq -c '.[]' FILE makes JSON lines "
                               "of a file that is one list",
                               printable(line, 80)));
    first = false;
    f(number, line);
  };
  std::vector<char> buffer(size_t{1} << 20);
  for (size_t got = 1; got > 0;) {
    got = stream.read(buffer.data(), buffer.size());
    size_t begin = 0;
    for (size_t i = 0; i < got; ++i) {
      if (buffer[i] != '\n') continue;
      rest.append(buffer.data() + begin, i - begin);
      give(rest);
      rest.clear();
      begin = i + 1;
    }
    rest.append(buffer.data() + begin, got - begin);
    if (rest.size() > kLongest)
      fail_in_line(path, number + 1, fmt::format("expected at most {} bytes, got more", kLongest));
  }
  if (!rest.empty()) give(rest);
}

std::vector<JsonLine> read_json_lines(const std::string& path, const JsonLinesFields& fields) {
  std::vector<JsonLine> all;
  for_json_lines(path, [&](int64_t number, std::string_view text) {
    Json object;
    try {
      object = parse_json<Json>(text);
    } catch (const JsonError& error) {
      fail_in_line(path, number, error);
    }
    if (!object.is_object())
      fail_in_line(path, number,
                   fmt::format("expected a JSON object, got {}", printable(object.dump(), 80)));
    JsonLine line;
    const Place place{object, path, number, all.empty()};
    line.text = text_in(place, "text", fields.text);
    if (!fields.second.empty()) line.second = text_in(place, "second_text", fields.second);
    if (!fields.label.empty()) line.label = label_in(place, "target", fields.label);
    all.push_back(std::move(line));
  });
  FRUGAL_CHECK(!all.empty(), "[jsonl] {}: expected lines with a JSON object each, got none",
               in_quotes(path));
  return all;
}

std::vector<std::string> sorted_labels(const std::vector<JsonLine>& lines) {
  std::set<std::string> labels;
  for (const JsonLine& line : lines) labels.insert(line.label);
  std::vector<std::string> sorted(labels.begin(), labels.end());
  if (std::all_of(sorted.begin(), sorted.end(), is_whole))
    std::sort(sorted.begin(), sorted.end(), [](const std::string& a, const std::string& b) {
      return std::stoll(a) < std::stoll(b);
    });
  return sorted;
}

}  // namespace frugal::data
