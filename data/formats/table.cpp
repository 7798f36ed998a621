#include "data/formats/table.h"
#include "data/text/unicode.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::data {
namespace {

constexpr size_t kLineBlock = size_t{1} << 18;

}  // namespace

TableReader::TableReader(const char* op, const std::string& path, TableKind kind,
                         TextEncoding encoding)
    : op_(op),
      path_(path),
      kind_(kind),
      separator_(kind == TableKind::csv ? ',' : '\t'),
      longest_(kind == TableKind::csv ? size_t{8} << 20 : size_t{1} << 20),
      stream_(op, path) {
  if (encoding != TextEncoding::utf_8) decoder_ = std::make_unique<TextDecoder>(op, path, encoding);
  if (refill() && buffer_.starts_with("\xef\xbb\xbf")) begin_ = 3;
}

void TableReader::fail(int64_t line, const std::string& message) const {
  throw Error(fmt::format("[{}] {} in {}, line {}", op_, message, path_, line));
}

bool TableReader::refill() {
  if (ended_) return false;
  buffer_.erase(0, begin_);
  begin_ = 0;
  const size_t have = buffer_.size();
  // Doubles, so that long records take linear time; a small file needs no large buffer.
  const auto rest = static_cast<size_t>(std::min<int64_t>(stream_.limit(), kLineBlock - 1)) + 1;
  const size_t want = std::max(rest, have);
  if (decoder_ != nullptr) {
    std::string bytes(want, '\0');
    while (!ended_ && buffer_.size() == have) {
      const size_t got = stream_.read(bytes.data(), want);
      ended_ = got < want;
      decoder_->decode({bytes.data(), got}, ended_, buffer_);
    }
    return buffer_.size() > have;
  }
  buffer_.resize(have + want);
  const size_t got = stream_.read(buffer_.data() + have, want);
  buffer_.resize(have + got);
  ended_ = got < want;
  return got > 0;
}

void TableReader::read_header() {
  FRUGAL_CHECK(next(), "[{}] expected a header in {}, got an empty file", op_, path_);
  header_.assign(fields_.begin(), fields_.end());
  std::unordered_set<std::string_view> names;
  for (const std::string& name : header_)
    if (!names.insert(name).second)
      fail(line_,
           fmt::format("expected columns of different names, got {} twice", in_quotes(name)));
}

size_t TableReader::column(const std::string& name) const {
  const auto at = std::find(header_.begin(), header_.end(), name);
  FRUGAL_CHECK(at != header_.end(), "[{}] expected a column {} in {}, got {}", op_, in_quotes(name),
               path_, printable(fmt::format("{}", fmt::join(header_, ", ")), 300));
  return static_cast<size_t>(at - header_.begin());
}

size_t TableReader::find_end() {
  size_t length = 0;  // number of scanned bytes; begin_ moves when the buffer is refilled
  bool quoted = false, start = true, field_quoted = false;
  const auto end_after = [&](size_t bytes) {
    if (bytes > longest_)
      fail(next_line_,
           fmt::format("expected a record of at most {} bytes, got a longer one", longest_));
    return begin_ + bytes;
  };
  while (true) {
    const char* const text = buffer_.data() + begin_;
    const size_t size = buffer_.size() - begin_;
    if (kind_ == TableKind::tsv || length == 0) {  // csv: most records have no quotes
      const auto* stop = static_cast<const char*>(std::memchr(text + length, '\n', size - length));
      const size_t bytes = stop == nullptr ? size : static_cast<size_t>(stop - text);
      if (kind_ == TableKind::tsv) length = bytes;
      if (stop != nullptr && (kind_ == TableKind::tsv || std::memchr(text, '"', bytes) == nullptr))
        return end_after(bytes);
    }
    for (; length < size; ++length) {
      const char c = text[length];
      if (quoted) {
        quoted = c != '"';    // a doubled quote closes and opens again
      } else if (c == '"') {  // opens only at the start of a field; elsewhere it is a character
        quoted = start || (field_quoted && text[length - 1] == '"');
        field_quoted = field_quoted || quoted;
      } else if (c == '\n') {
        return end_after(length);
      } else if (c == ',') {
        field_quoted = false;
      }
      start = !quoted && c == ',';
    }
    end_after(length);
    if (!refill()) {
      if (quoted) fail(next_line_, "expected each quote to be closed");
      return buffer_.size();
    }
  }
}

// Fields are views of the buffer. Quotes are removed in place.
void TableReader::split(size_t end) {
  fields_.clear();
  size_t stop = end;
  if (stop > begin_ && buffer_[stop - 1] == '\r') --stop;
  size_t at = begin_;
  while (true) {
    if (kind_ == TableKind::csv && at < stop && buffer_[at] == '"') {
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
      const auto* separator =
          static_cast<const char*>(std::memchr(buffer_.data() + at, separator_, stop - at));
      const size_t last =
          separator == nullptr ? stop : static_cast<size_t>(separator - buffer_.data());
      fields_.emplace_back(buffer_.data() + at, last - at);
      at = last;
    }
    if (at >= stop) return;
    ++at;  // skips a separator; an empty field follows the last one
  }
}

bool TableReader::next() {
  while (true) {
    if (begin_ == buffer_.size() && !refill()) return false;
    const size_t end = find_end();
    line_ = next_line_;
    next_line_ += 1 + std::count(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
                                 buffer_.begin() + static_cast<std::ptrdiff_t>(end), '\n');
    split(end);
    begin_ = std::min(end + 1, buffer_.size());
    const bool empty = fields_.size() == 1 && fields_[0].empty();
    if (kind_ == TableKind::tsv || !empty) return true;
  }
}

void TableReader::expect_utf8(std::string_view text, const std::string& column,
                              const char* advice) const {
  data::expect_utf8(
      text,
      [&](size_t) {
        return fmt::format("[{}] {}, line {}, column {}", op_, in_quotes(path_), line_,
                           in_quotes(column));
      },
      advice);
}

void TableReader::expect_fields(size_t count) const {
  if (fields_.size() != count)
    fail(line_, fmt::format("expected {} fields, got {}", count, fields_.size()));
}

int64_t TableReader::integer(size_t index, int64_t low, int64_t high) const {
  const std::string_view text = index < fields_.size() ? fields_[index] : std::string_view();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < low ||
      value >= high)
    fail(line_, fmt::format("expected an integer in [{}, {}) in field {}, got {}", low, high,
                            index + 1, in_quotes(text)));
  return value;
}

float TableReader::real(size_t index) const {
  const std::string_view text = index < fields_.size() ? fields_[index] : std::string_view();
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error == std::errc::invalid_argument || end != text.data() + text.size())
    fail(line_, fmt::format("expected a number in field {}, got {}", index + 1, in_quotes(text)));
  // from_chars does not say whether the number is too small (0 here) or too large (infinite here).
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
