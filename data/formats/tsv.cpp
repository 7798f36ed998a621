#include "data/formats/tsv.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "core/error.h"
#include "core/quoted.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

constexpr size_t kMaxLine = size_t{1} << 20;

// The field inside its quotes, or the field as it stands where they do not enclose it.
void unquote(std::string& field) {
  if (field.size() < 2 || field.front() != '"' || field.back() != '"') return;
  std::string inside;
  for (size_t i = 1; i + 1 < field.size(); ++i) {
    if (field[i] == '"') {
      if (i + 2 >= field.size() || field[i + 1] != '"') return;
      ++i;
    }
    inside += field[i];
  }
  field = std::move(inside);
}

}  // namespace

TsvReader::TsvReader(const std::string& path, const TsvOptions& options)
    : path_(path), options_(options) {
  file_size("tsv", path);
  file_.open(path, std::ios::binary);
  FRUGAL_CHECK(file_.is_open(), "[tsv] cannot open {}", path);
  FRUGAL_CHECK(file_.peek() != std::ifstream::traits_type::eof(),
               "[tsv] expected lines in {}, got an empty file", path);
  if (!options.header) return;
  read_line(header_);
  columns_ = header_.size();
  std::unordered_set<std::string_view> names;
  for (const std::string& name : header_)
    FRUGAL_CHECK(names.insert(name).second,
                 "[tsv] expected columns of different names in {}, got {} twice", path,
                 in_quotes(name));
}

size_t TsvReader::column(const std::string& name) const {
  const auto at = std::find(header_.begin(), header_.end(), name);
  FRUGAL_CHECK(at != header_.end(), "[tsv] expected a column {} in {}, got {}", in_quotes(name),
               path_, printable(fmt::format("{}", fmt::join(header_, ", ")), 300));
  return static_cast<size_t>(at - header_.begin());
}

bool TsvReader::read_line(std::vector<std::string>& fields) {
  text_.resize(kMaxLine + 1);  // and a zero behind it
  file_.getline(text_.data(), static_cast<std::streamsize>(text_.size()));
  const auto got = static_cast<size_t>(file_.gcount());
  FRUGAL_CHECK(!file_.bad(), "[tsv] cannot read {} after line {}", path_, line_);
  if (file_.eof() && got == 0) return false;
  FRUGAL_CHECK(!file_.fail(),
               "[tsv] expected lines of at most {} bytes in {}, got a longer one at line {}; is it "
               "such a table?",
               kMaxLine, path_, line_ + 1);
  ++line_;
  std::string_view rest(text_.data(), file_.eof() ? got : got - 1);
  if (line_ == 1 && rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);
  if (rest.ends_with('\r')) rest.remove_suffix(1);
  fields.clear();
  while (true) {
    const size_t end = rest.find('\t');
    fields.emplace_back(rest.substr(0, end));
    if (options_.quoted) unquote(fields.back());
    if (end == std::string_view::npos) return true;
    rest.remove_prefix(end + 1);
  }
}

bool TsvReader::next(std::vector<std::string>& fields) {
  if (!read_line(fields)) return false;
  if (columns_ == 0) columns_ = fields.size();
  FRUGAL_CHECK(fields.size() == columns_, "[tsv] expected {} fields in line {} of {}, got {}",
               columns_, line_, path_, fields.size());
  return true;
}

}  // namespace frugal::data
