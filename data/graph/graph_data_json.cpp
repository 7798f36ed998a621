#include "data/graph/graph_data_json.h"

#include <charconv>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/json_strict.h"

namespace frugal::data {
namespace {

using nlohmann::json;

// Handles the parser's events. No tree is built, so deep or large files take no memory.
class Events : public json::json_sax_t {
 public:
  Events(const char* op, const std::string& path, const JsonEntry& entry)
      : op_(op), path_(path), entry_(entry) {}

  bool null() override { fail("null"); }
  bool boolean(bool /*value*/) override { fail("a bool"); }
  bool string(string_t& value) override { fail(fmt::format("the text {}", in_quotes(value))); }
  bool binary(binary_t& /*value*/) override { fail("bytes"); }
  bool number_integer(number_integer_t value) override { return number(value); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) fail("a number beyond 64 bits");
    return number(static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (!(value > -9e15 && value < 9e15) ||
        static_cast<double>(static_cast<int64_t>(value)) != value)
      fail(printable(text));
    return number(static_cast<int64_t>(value));
  }
  bool start_object(size_t /*count*/) override {
    if (opened_) fail("an object inside");
    return opened_ = true;
  }
  bool key(string_t& name) override {
    name_ = name;
    return true;
  }
  bool end_object() override { return true; }
  bool start_array(size_t /*count*/) override {
    if (!opened_ || in_list_) fail("a list elsewhere");
    numbers_.clear();
    return in_list_ = true;
  }
  bool end_array() override {
    in_list_ = false;
    entry_(name_, numbers_, true);
    return true;
  }
  bool parse_error(size_t offset, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    throw Error(fmt::format("[{}] invalid JSON in {} at offset {}: {}", op_, path_, offset,
                            json_reason(error)));
  }

 private:
  [[noreturn]] void fail(const std::string& got) const {
    throw Error(
        fmt::format("[{}] expected an object of numbers and lists of numbers in {}, got {}{}", op_,
                    path_, got, opened_ ? fmt::format(" at {}", in_quotes(name_)) : ""));
  }
  bool number(int64_t value) {
    if (!opened_) fail("a number");
    if (in_list_) {
      numbers_.push_back(value);
    } else {
      entry_(name_, {value}, false);
    }
    return true;
  }
  const char* op_;
  const std::string& path_;
  const JsonEntry& entry_;
  bool opened_ = false, in_list_ = false;
  std::string name_;
  std::vector<int64_t> numbers_;
};

// Gives a file's bytes to the parser and refuses NUL bytes, at which the parser would stop.
class FileBytes {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = char;

  FileBytes() = default;  // the end iterator
  FileBytes(const char* op, const std::string& path, std::FILE* file)
      : op_(op), path_(&path), file_(file) {
    ++*this;
  }
  char operator*() const { return byte_; }
  FileBytes& operator++() {
    const int c = getc_unlocked(file_);
    if (c == EOF) file_ = nullptr;
    byte_ = static_cast<char>(c);
    ++count_;
    FRUGAL_CHECK(c != 0, "[{}] invalid JSON in {} at offset {}: a NUL byte", op_, *path_,
                 count_ - 1);
    return *this;
  }
  bool operator==(const FileBytes& other) const { return file_ == other.file_; }

 private:
  const char* op_ = nullptr;
  const std::string* path_ = nullptr;
  std::FILE* file_ = nullptr;
  int64_t count_ = 0;
  char byte_ = 0;
};

}  // namespace

void read_json_numbers(const char* op, const std::string& path, const JsonEntry& entry) {
  const FileHandle file = open_file(op, path);
  Events events(op, path, entry);
  const bool whole = json::sax_parse(FileBytes(op, path, file.get()), FileBytes(), &events);
  FRUGAL_CHECK(whole && !std::ferror(file.get()), "[{}] cannot read {}", op, path);
}

int64_t node_of(const char* op, const std::string& path, const std::string& name, int64_t nodes) {
  int64_t node = -1;
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, node);
  FRUGAL_CHECK(error == std::errc() && stop == end && node >= 0 && node < nodes,
               "[{}] expected nodes in [0, {}) in {}, got {}", op, nodes, path, in_quotes(name));
  return node;
}

}  // namespace frugal::data
