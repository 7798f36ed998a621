#include "data/formats/csv.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/quoted.h"

namespace frugal::data {
namespace {

constexpr size_t kChunk = size_t{1} << 18, kMaxRecord = size_t{8} << 20;

}  // namespace

CsvReader::CsvReader(const char* op, const std::string& path)
    : op_(op), path_(path), stream_(op, path) {}

void CsvReader::fail(int64_t line, const std::string& message) const {
  throw Error(fmt::format("[{}] {} in {}, line {}", op_, message, path_, line));
}

bool CsvReader::refill() {
  if (ended_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t have = buffer_.size();
  if (have > kMaxRecord) fail(next_line_, "expected a record of at most 8 MiB");
  const size_t want = std::max(kChunk, have);  // doubling, so that long records cost linear time
  buffer_.resize(have + want);
  const size_t got = stream_.read(buffer_.data() + have, want);
  buffer_.resize(have + got);
  ended_ = got < want;
  return got > 0;
}

size_t CsvReader::find_end() {
  size_t length = 0;  // of what was scanned; begin_ moves when the buffer is refilled
  bool quoted = false, start = true, field_quoted = false;
  while (true) {
    const char* const text = buffer_.data() + begin_;
    const size_t size = buffer_.size() - begin_;
    if (!quoted && start && length == 0) {  // most records hold no quotes
      const auto* stop = static_cast<const char*>(std::memchr(text, '\n', size));
      if (stop != nullptr && std::memchr(text, '"', static_cast<size_t>(stop - text)) == nullptr)
        return begin_ + static_cast<size_t>(stop - text);
    }
    for (; length < size; ++length) {
      const char c = text[length];
      if (quoted) {
        quoted = c != '"';    // a doubled quote closes and opens again
      } else if (c == '"') {  // opens at a field's start alone; in a plain field it is a character
        quoted = start || (field_quoted && text[length - 1] == '"');
        field_quoted = field_quoted || quoted;
      } else if (c == '\n') {
        return begin_ + length;
      } else if (c == ',') {
        field_quoted = false;
      }
      start = !quoted && c == ',';
    }
    if (!refill()) {
      if (quoted) fail(next_line_, "expected each quote to be closed");
      return buffer_.size();
    }
  }
}

// Fields are views of the buffer; quotes are taken out in place.
void CsvReader::split(size_t end) {
  fields_.clear();
  size_t stop = end;
  if (stop > begin_ && buffer_[stop - 1] == '\r') --stop;
  size_t at = begin_;
  while (true) {
    if (at < stop && buffer_[at] == '"') {
      size_t write = at;
      const size_t first = at++;
      while (true) {
        if (at >= stop) fail(line_, "expected each quote to be closed");
        if (buffer_[at] == '"') {
          if (at + 1 >= stop || buffer_[at + 1] != '"') break;
          ++at;
        }
        buffer_[write++] = buffer_[at++];
      }
      fields_.emplace_back(buffer_.data() + first, write - first);
      ++at;
      if (at < stop && buffer_[at] != ',') fail(line_, "expected a comma behind a closing quote");
    } else {
      const auto* comma =
          static_cast<const char*>(std::memchr(buffer_.data() + at, ',', stop - at));
      const size_t last = comma == nullptr ? stop : static_cast<size_t>(comma - buffer_.data());
      fields_.emplace_back(buffer_.data() + at, last - at);
      at = last;
    }
    if (at >= stop) return;
    ++at;  // a comma; behind the last one there is an empty field
  }
}

bool CsvReader::next() {
  while (true) {
    if (begin_ == buffer_.size() && !refill()) return false;
    const size_t end = find_end();
    line_ = next_line_;
    next_line_ += 1 + std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                 buffer_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    split(end);
    begin_ = std::min(end + 1, buffer_.size());
    if (fields_.size() > 1 || !fields_[0].empty()) return true;
  }
}

void CsvReader::expect_fields(size_t count) const {
  if (fields_.size() != count)
    fail(line_, fmt::format("expected {} fields, got {}", count, fields_.size()));
}

int64_t CsvReader::integer(size_t index, int64_t low, int64_t high) const {
  const std::string_view text = index < fields_.size() ? fields_[index] : std::string_view();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < low ||
      value >= high)
    fail(line_, fmt::format("expected an integer in [{}, {}) in field {}, got {}", low, high,
                            index + 1, in_quotes(text)));
  return value;
}

float CsvReader::real(size_t index) const {
  const std::string_view text = index < fields_.size() ? fields_[index] : std::string_view();
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error == std::errc::invalid_argument || end != text.data() + text.size())
    fail(line_, fmt::format("expected a number in field {}, got {}", index + 1, in_quotes(text)));
  // Out of range leaves the value alone: too small is 0, too large no finite number.
  if (error == std::errc::result_out_of_range) {
    double wide = 0;
    const auto again = std::from_chars(text.data(), text.data() + text.size(), wide);
    const bool small = again.ec == std::errc() ? wide > -1 && wide < 1
                                               : text.find("e-") != std::string_view::npos ||
                                                     text.find("E-") != std::string_view::npos;
    return small ? 0.0f : std::numeric_limits<float>::infinity();
  }
  return value;
}

}  // namespace frugal::data
