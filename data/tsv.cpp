#include "data/tsv.h"

#include <algorithm>
#include <string_view>

#include "core/error.h"
#include "data/file_bytes.h"

namespace frugal::data {
namespace {

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
  for (auto name = header_.begin(); name != header_.end(); ++name)
    FRUGAL_CHECK(std::find(name + 1, header_.end(), *name) == header_.end(),
                 "[tsv] expected columns of different names in {}, got \"{}\" twice", path, *name);
}

size_t TsvReader::column(const std::string& name) const {
  const auto at = std::find(header_.begin(), header_.end(), name);
  FRUGAL_CHECK(at != header_.end(), "[tsv] expected a column \"{}\" in {}, got {}", name, path_,
               fmt::join(header_, ", "));
  return static_cast<size_t>(at - header_.begin());
}

bool TsvReader::read_line(std::vector<std::string>& fields) {
  if (!std::getline(file_, text_)) {
    FRUGAL_CHECK(!file_.bad(), "[tsv] cannot read {} after line {}", path_, line_);
    return false;
  }
  ++line_;
  std::string_view rest = text_;
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
