// Tables in text, plain or gzipped: commas, quotes where a field holds commas, quotes or line ends.
// Reads record by record, in little memory.  Ref: RFC 4180.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/zip.h"

namespace frugal::data {

class CsvReader {
 public:
  // `op` names the reader in messages. Errors: those of ByteStream.
  CsvReader(const char* op, const std::string& path);

  // Moves on to the next record that is not an empty line; false at the end of the file.
  // Errors (with file and line): a quote that never closes, text behind a closing quote, a record
  // above 8 MiB, those of ByteStream::read.
  bool next();

  // Views live until the next next().
  const std::vector<std::string_view>& fields() const { return fields_; }
  int64_t line() const { return line_; }  // of the record's start, from 1

  // Errors (with file, line and field): another number of fields.
  void expect_fields(size_t count) const;
  // Field `index` as a number. Errors: none, an integer outside [low, high).
  int64_t integer(size_t index, int64_t low, int64_t high) const;
  float real(size_t index) const;  // also nan and inf

 private:
  bool refill();
  size_t find_end();  // of the record at begin_: the position of its line end
  void split(size_t end);
  [[noreturn]] void fail(int64_t line, const std::string& message) const;
  const char* op_;
  std::string path_;
  ByteStream stream_;
  std::string buffer_;
  size_t begin_ = 0;  // of the next record
  bool ended_ = false;
  int64_t line_ = 0, next_line_ = 1;
  std::vector<std::string_view> fields_;
};

}  // namespace frugal::data
