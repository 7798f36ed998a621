// TsvReader: tables of tab-separated fields, line by line.
#pragma once
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace frugal::data {

struct TsvOptions {
  bool header = true;  // the first line names the columns
  // A field in quotes stands for what is inside, "" for one quote; quotes that do not enclose the
  // field are text, so an unbalanced one costs nothing. Otherwise every quote is text.
  bool quoted = false;
};

// A byte order mark and line ends of Windows are dropped; a field cannot hold a tab or a new line.
// Reads line by line, in little memory.
class TsvReader {
 public:
  // Errors: unreadable; an empty file; a column named twice.
  TsvReader(const std::string& path, const TsvOptions& options = {});

  const std::vector<std::string>& header() const { return header_; }
  size_t column(const std::string& name) const;  // Errors: none such, listing those there are

  // The next line's fields; false at the end. Errors (with the line's number): not as many fields
  // as the first line has; a line above 1 MiB; a failing read.
  bool next(std::vector<std::string>& fields);
  int64_t line() const { return line_; }  // of what next() gave, from 1

 private:
  bool read_line(std::vector<std::string>& fields);
  std::string path_;
  TsvOptions options_;
  std::ifstream file_;
  std::string text_;
  std::vector<std::string> header_;
  size_t columns_ = 0;
  int64_t line_ = 0;
};

}  // namespace frugal::data
