// Tables in text, plain or gzipped, with commas or tabs between the fields.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/formats/byte_stream.h"
#include "data/formats/text_decoder.h"

namespace frugal::data {

enum class TableKind : uint8_t {
  csv,  // commas; quotes around a field that holds commas, quotes or line ends; empty lines are
        // skipped; records of at most 8 MiB.  Ref: RFC 4180
  tsv,  // tabs; a quote is text, as in GLUE's files; a line is a record, of at most 1 MiB
};

// Reads record by record, in little memory. Fields are UTF-8 where the file is, or where an
// encoding is given; bytes of a file that is not are handed on as they are. A byte order mark at
// the start and the carriage returns of Windows's line ends are dropped.
class TableReader {
 public:
  // `op` names the reader in messages. Errors: those of ByteStream.
  TableReader(const char* op, const std::string& path, TableKind kind = TableKind::csv,
              TextEncoding encoding = TextEncoding::utf_8);

  // Takes the next record as the names of the columns. Errors: there is none; a name that occurs
  // twice; those of next().
  void read_header();
  const std::vector<std::string>& header() const { return header_; }
  size_t column(const std::string& name) const;  // Errors: no such column, with a list of them

  // Moves on to the next record; false at the end of the file.
  // Errors (with file and line): a quote that never closes, text behind a closing quote, a record
  // that is too long, those of ByteStream::read.
  bool next();

  // Views live until the next next().
  const std::vector<std::string_view>& fields() const { return fields_; }
  int64_t line() const { return line_; }  // line where the record begins, from 1

  // Errors (with file, line and field): another number of fields.
  void expect_fields(size_t count) const;
  // Errors (with file, line and column): bytes of `text` that are not UTF-8; `advice` says what
  // to do. Tokenizers would leave them out.
  void expect_utf8(std::string_view text, const std::string& column, const char* advice) const;
  // Field `index` as a number. Errors: none, an integer outside [low, high).
  int64_t integer(size_t index, int64_t low, int64_t high) const;
  float real(size_t index) const;  // also nan and inf

 private:
  bool refill();
  size_t find_end();  // the end of the line of the record at begin_
  void split(size_t end);
  [[noreturn]] void fail(int64_t line, const std::string& message) const;
  const char* op_;
  std::string path_;
  TableKind kind_;
  char separator_;
  size_t longest_;  // the longest record, in bytes
  ByteStream stream_;
  std::unique_ptr<TextDecoder> decoder_;  // null: the bytes are the text
  std::string buffer_;
  size_t begin_ = 0;  // where the next record begins
  bool ended_ = false;
  int64_t line_ = 0, next_line_ = 1;
  std::vector<std::string_view> fields_;
  std::vector<std::string> header_;
};

}  // namespace frugal::data
