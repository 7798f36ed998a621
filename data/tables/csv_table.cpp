#include "data/tables/csv_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "core/log.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/formats/table.h"

namespace frugal::data {
namespace {

constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
constexpr size_t kMostOneHot = 1000;
// Whole numbers with more different values are rather numbers to predict than classes.
constexpr size_t kMostGuessedClasses = 100;

std::string_view trimmed(std::string_view cell) {
  const size_t begin = cell.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return cell.substr(begin, cell.find_last_not_of(" \t") - begin + 1);
}

bool is_missing(std::string_view cell) {
  static constexpr std::array<std::string_view, 8> kNames = {"",    "NA",  "N/A",  "NaN",
                                                             "nan", "NAN", "null", "NULL"};
  return std::find(kNames.begin(), kNames.end(), cell) != kNames.end();
}

// A number that is too small for a double is 0, one that is too large is infinite: they are numbers
// nevertheless, so their column is one of numbers.
std::optional<double> number_in(std::string_view cell) {
  if (cell.starts_with('+')) cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error == std::errc::invalid_argument || end != cell.data() + cell.size()) return std::nullopt;
  if (error == std::errc()) return value;
  return std::strtod(std::string(cell).c_str(), nullptr);  // from_chars does not tell the two apart
}

constexpr const char* kEncodingAdvice =
    "data.encoding says what the file is, such as windows-1252 or utf-16";

// Calls f(line, cells) for each line behind the header, cells without blanks around them.
template <class F>
void for_rows(const std::string& path, TextEncoding encoding, std::vector<std::string>& header,
              const F& f) {
  TableReader table("csv", path, TableKind::csv, encoding);
  table.read_header();
  header = table.header();
  if (const size_t at = header.size() == 1 ? header[0].find_first_of(";\t") : std::string::npos;
      at != std::string::npos)
    throw Error(fmt::format(
        "[csv] {}, line 1: expected commas between columns, and points in numbers such as 82.5, "
        "got {} between columns",
        in_quotes(path), header[0][at] == ';' ? "semicolons" : "tabs"));
  for (const std::string& name : header) table.expect_utf8(name, name, kEncodingAdvice);
  std::vector<std::string_view> cells(header.size());
  while (table.next()) {
    table.expect_fields(header.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      cells[i] = trimmed(table.fields()[i]);
      table.expect_utf8(cells[i], header[i], kEncodingAdvice);
    }
    f(table.line(), cells);
  }
}

bool are_whole(const CsvTable::Column& column) { return column.is_number && column.all_whole; }

std::string whole_number(double whole) { return fmt::format("{:.0f}", whole); }

}  // namespace

const CsvTable::Column& CsvTable::column(const std::string& name) const {
  const auto found = place_of_.find(name);
  if (found != place_of_.end()) return columns_[found->second];
  std::vector<std::string> names;
  for (const Column& column : columns_) names.push_back(column.name);
  throw Error(fmt::format("[csv] expected a column {} in {}, got {}", in_quotes(name),
                          in_quotes(path_),
                          printable(fmt::format("{}", fmt::join(names, ", ")), 300)));
}

std::vector<CsvTable::Kind> CsvTable::kinds() const {
  std::vector<Kind> all;
  for (const Column& column : columns_) all.push_back({column.name, column.is_number});
  return all;
}

// Reads the file twice: what kinds columns have, then their cells.
CsvTable::CsvTable(const std::string& path, TextEncoding encoding)
    : path_(path), encoding_(encoding) {
  std::vector<std::string> header;
  for_rows(path, encoding_, header, [&](int64_t line, const std::vector<std::string_view>& cells) {
    columns_.resize(cells.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      if (is_missing(cells[i])) continue;
      Column& column = columns_[i];
      if (number_in(cells[i])) {
        ++column.cells_of_numbers;
      } else if (column.text_line == 0) {
        column.text = cells[i];
        column.text_line = line;
      }
    }
  });
  columns_.resize(header.size());
  for (size_t i = 0; i < header.size(); ++i) {
    columns_[i].name = header[i];
    columns_[i].is_number = columns_[i].text_line == 0;
    place_of_.emplace(header[i], i);
  }
  read_cells();
}

CsvTable::CsvTable(const std::string& path, const std::vector<Kind>& known, TextEncoding encoding)
    : path_(path), encoding_(encoding) {
  std::vector<std::string> header;
  for_rows(path, encoding_, header, [](int64_t, const std::vector<std::string_view>&) {});
  columns_.resize(header.size());
  std::unordered_map<std::string_view, bool> is_number;
  for (const Kind& kind : known) is_number.emplace(kind.name, kind.is_number);
  for (size_t i = 0; i < header.size(); ++i) {
    const auto found = is_number.find(header[i]);
    columns_[i].name = header[i];
    columns_[i].is_number = found != is_number.end() && found->second;
    place_of_.emplace(header[i], i);
  }
  for (const Kind& kind : known) column(kind.name);
  read_cells();
}

void CsvTable::read_cells() {
  std::vector<std::string> header;
  const std::string& path = path_;
  std::vector<std::unordered_map<std::string, int32_t>> codes(columns_.size());
  for_rows(path, encoding_, header, [&](int64_t line, const std::vector<std::string_view>& cells) {
    lines_.push_back(line);
    for (size_t i = 0; i < cells.size(); ++i) {
      Column& column = columns_[i];
      if (!column.is_number) {
        if (is_missing(cells[i])) {
          column.codes.push_back(-1);
          continue;
        }
        const auto next = static_cast<int32_t>(column.names.size());
        const auto [entry, added] = codes[i].emplace(std::string(cells[i]), next);
        if (added) column.names.emplace_back(cells[i]);
        column.codes.push_back(entry->second);
        continue;
      }
      if (is_missing(cells[i])) {
        column.numbers.push_back(kMissing);
        continue;
      }
      const auto value = number_in(cells[i]);
      FRUGAL_CHECK(value && std::isfinite(*value) && std::isfinite(static_cast<float>(*value)),
                   "[csv] {}, line {}: expected a finite number in column {}, got {}",
                   in_quotes(path_), line, in_quotes(column.name), in_quotes(cells[i]));
      column.all_whole = column.all_whole && *value == std::floor(*value);
      column.numbers.push_back(*value);
    }
  });
  FRUGAL_CHECK(!lines_.empty(), "[csv] {}: expected lines behind the header, got none",
               in_quotes(path_));
}

namespace {

std::string target_name(const CsvTable& table, const CsvOptions& options) {
  if (!options.target.empty()) return table.column(options.target).name;
  for (const char* name : {"target", "label"})
    for (const CsvTable::Column& column : table.columns())
      if (column.name == name) return name;
  std::vector<std::string> names;
  for (const CsvTable::Column& column : table.columns()) names.push_back(column.name);
  throw Error(fmt::format(
      "[csv] {}: expected a column target or label, or data.target with the "
      "name of the column to predict; the columns are {}",
      in_quotes(table.path()), printable(fmt::format("{}", fmt::join(names, ", ")), 300)));
}

// Are there more numbers than text in a column that is text because of single cells?
bool has_mostly_numbers(const CsvTable::Column& column) {
  return !column.is_number &&
         2 * column.cells_of_numbers >= static_cast<int64_t>(column.codes.size());
}

// Tells of a column that one cell, such as "?", makes one of categories.
void warn_of_text_beside_numbers(const CsvTable& table, const CsvTable::Column& column) {
  if (!has_mostly_numbers(column)) return;
  log().warn(
      "[csv] {}: column {} is one of categories, since line {} has {} there; {} of its {} cells "
      "are "
      "numbers",
      in_quotes(table.path()), in_quotes(column.name), column.text_line, in_quotes(column.text),
      column.cells_of_numbers, table.rows());
}

// Whether the target's cells are classes. Errors: OptionError if the task does not fit to the
// column; Error if single cells do not fit to the task.
bool has_classes(const CsvTable::Column& target, const CsvOptions& options,
                 const std::string& path) {
  if (!target.is_number) {
    if (options.task != CsvOptions::Task::values) return true;
    const std::string got =
        target.text_line == 0
            ? "text"
            : fmt::format("{} in line {}", in_quotes(target.text), target.text_line);
    if (!has_mostly_numbers(target))
      throw OptionError(
          "task", fmt::format("expected classes for column {} of {}, which has {}, got values",
                              in_quotes(target.name), in_quotes(path), got));
    throw Error(fmt::format("[csv] {}: expected numbers to predict in column {}, got {}",
                            in_quotes(path), in_quotes(target.name), got));
  }
  if (options.task == CsvOptions::Task::values) return false;
  if (options.task == CsvOptions::Task::automatic) {
    if (!target.all_whole) return false;
    const std::set<double> values(target.numbers.begin(), target.numbers.end());
    FRUGAL_CHECK(values.size() <= kMostGuessedClasses,
                 "[csv] {}: column {} has {} different whole numbers; data.task says whether they "
                 "are classes or values",
                 in_quotes(path), in_quotes(target.name), values.size());
    return true;
  }
  if (!target.all_whole)
    throw OptionError("task", fmt::format("expected values for column {} of {}, which has numbers "
                                          "with fractions, got classes",
                                          in_quotes(target.name), in_quotes(path)));
  return true;
}

// Doubles hold all whole numbers up to here; beyond, several would become one class.
constexpr double kLargestClass = 9007199254740992;

void check_classes(const CsvTable& table, const CsvTable::Column& target) {
  if (!target.is_number) return;
  for (int64_t row = 0; row < table.rows(); ++row) {
    const double value = target.numbers[static_cast<size_t>(row)];
    FRUGAL_CHECK(std::isnan(value) || std::abs(value) < kLargestClass,
                 "[csv] {}, line {}: expected a class in column {} that is a name or a whole "
                 "number below 2^53, got {}; names with a letter are taken as they are",
                 in_quotes(table.path()), table.line(row), in_quotes(target.name),
                 whole_number(value));
  }
}

// The class of a row as text; nothing: missing.
std::optional<std::string> class_in(const CsvTable::Column& target, int64_t row) {
  const auto at = static_cast<size_t>(row);
  if (!target.is_number)
    return target.codes[at] < 0
               ? std::nullopt
               : std::optional(target.names[static_cast<size_t>(target.codes[at])]);
  const double value = target.numbers[at];
  return std::isnan(value) ? std::nullopt : std::optional(whole_number(value));
}

CsvEncoding::Number number_of(const CsvTable::Column& column, const std::vector<int64_t>& rows,
                              bool standardize) {
  double count = 0, mean = 0, spread = 0;
  for (const int64_t row : rows) {
    const double value = column.numbers[static_cast<size_t>(row)];
    if (std::isnan(value)) continue;
    count += 1;
    const double off = value - mean;
    mean += off / count;
    spread += off * (value - mean);
  }
  if (count == 0) return {};
  if (!standardize) return {mean, 1};
  const double std = std::sqrt(spread / count);
  return {mean, std > 0 ? std : 1};  // a column of one value becomes 0
}

}  // namespace

void CsvEncoder::missing(const CsvTable& table, int64_t row, const std::string& column) const {
  const bool target = column == encoding_.target;
  throw Error(fmt::format("[csv] {}, line {}: expected a {} in column {}, got an empty cell{}",
                          in_quotes(table.path()), table.line(row), target ? "target" : "value",
                          in_quotes(column),
                          target ? ""
                                 : "; data.missing=fill puts the column's mean, or no "
                                   "category, in its place"));
}

float CsvEncoding::input_of(const Input& input, double number) const {
  const double known = std::isnan(number) ? input.number.mean : number;
  return static_cast<float>(standardize ? (known - input.number.mean) / input.number.std : known);
}

int64_t CsvEncoding::width() const {
  int64_t width = 0;
  for (const Input& input : inputs)
    width += input.is_number || !one_hot ? 1 : static_cast<int64_t>(input.categories.size());
  return width;
}

std::vector<CsvTable::Kind> CsvEncoder::input_columns() const {
  std::vector<CsvTable::Kind> all;
  for (const CsvEncoding::Input& input : encoding_.inputs)
    all.push_back({input.name, input.is_number});
  return all;
}

// Classes that are whole numbers were read as numbers: 1.0 is the class 1.
std::vector<CsvTable::Kind> CsvEncoder::columns() const {
  std::vector<CsvTable::Kind> all = input_columns();
  const bool numbers =
      std::all_of(encoding_.classes.begin(), encoding_.classes.end(), [](const std::string& name) {
        const auto value = number_in(name);
        return value && whole_number(*value) == name;
      });
  all.push_back({encoding_.target, numbers});
  return all;
}

CsvEncoder::CsvEncoder(const CsvTable& table, const CsvOptions& options,
                       const std::vector<int64_t>& training_rows) {
  encoding_.one_hot = options.one_hot;
  encoding_.fill_missing = options.fill_missing;
  encoding_.standardize = options.standardize;
  encoding_.target = target_name(table, options);
  std::vector<std::string>& classes = encoding_.classes;
  FRUGAL_CHECK(!training_rows.empty(), "[csv] {}: expected rows to train on, got none",
               in_quotes(table.path()));
  const std::unordered_set<std::string> dropped(options.drop.begin(), options.drop.end());
  for (const std::string& name : options.drop)
    if (table.column(name).name == encoding_.target)
      throw OptionError(
          "drop", fmt::format("expected other columns than the target, got {}", in_quotes(name)));
  for (const CsvTable::Column& column : table.columns()) {
    if (column.name == encoding_.target || dropped.contains(column.name)) continue;
    CsvEncoding::Input input;
    input.name = column.name;
    input.is_number = column.is_number;
    warn_of_text_beside_numbers(table, column);
    if (column.is_number) {
      input.number = number_of(column, training_rows, options.standardize);
    } else {
      std::set<std::string> names;
      for (const int64_t row : training_rows)
        if (const int32_t code = column.codes[static_cast<size_t>(row)]; code >= 0)
          names.insert(column.names[static_cast<size_t>(code)]);
      input.categories.assign(names.begin(), names.end());
      FRUGAL_CHECK(!options.one_hot || names.size() <= kMostOneHot,
                   "[csv] {}: column {} has {} categories, above {}, which would be an input each; "
                   "data.drop leaves it out, data.categories=index makes one input",
                   in_quotes(table.path()), in_quotes(column.name), names.size(), kMostOneHot);
    }
    encoding_.inputs.push_back(std::move(input));
  }
  FRUGAL_CHECK(encoding_.width() > 0, "[csv] {}: expected columns beside the target {}, got none",
               in_quotes(table.path()), in_quotes(encoding_.target));
  const CsvTable::Column& target = table.column(encoding_.target);
  warn_of_text_beside_numbers(table, target);
  if (!has_classes(target, options, table.path())) {
    if (options.standardize) encoding_.value = number_of(target, training_rows, true);
    return;
  }
  check_classes(table, target);
  std::set<std::string> names;
  for (const int64_t row : training_rows) {
    const auto name = class_in(target, row);
    if (!name) missing(table, row, encoding_.target);
    names.insert(*name);
  }
  if (options.task == CsvOptions::Task::automatic && target.is_number && names.size() > 2 &&
      2 * names.size() > training_rows.size())
    log().warn(
        "[csv] {}: the {} different whole numbers of column {} in {} rows to train on are "
        "taken for classes; data.task=values predicts numbers",
        in_quotes(table.path()), names.size(), in_quotes(encoding_.target), training_rows.size());
  classes.assign(names.begin(), names.end());
  if (are_whole(target))
    std::sort(classes.begin(), classes.end(), [](const std::string& a, const std::string& b) {
      return *number_in(a) < *number_in(b);
    });
}

namespace {

// The place of each of the file's categories among those of the training part; -1: it is not there.
std::vector<int64_t> places_in(const CsvEncoding::Input& input, const CsvTable::Column& column) {
  std::vector<int64_t> places;
  for (const std::string& name : column.names) {
    const auto at = std::lower_bound(input.categories.begin(), input.categories.end(), name);
    const bool known = at != input.categories.end() && *at == name;
    places.push_back(known ? at - input.categories.begin() : -1);
  }
  return places;
}

}  // namespace

void CsvEncoder::warn_of_unknown(const CsvTable& table, const std::string& part,
                                 const std::vector<int64_t>* rows) const {
  for (const CsvEncoding::Input& input : encoding_.inputs) {
    if (input.is_number) continue;
    const CsvTable::Column& column = table.column(input.name);
    const std::vector<int64_t> places = places_in(input, column);
    std::unordered_set<int32_t> unknown;
    int64_t first = table.rows();
    const int64_t count = rows == nullptr ? table.rows() : static_cast<int64_t>(rows->size());
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows == nullptr ? i : (*rows)[static_cast<size_t>(i)];
      const int32_t code = column.codes[static_cast<size_t>(row)];
      if (code < 0 || places[static_cast<size_t>(code)] >= 0) continue;
      unknown.insert(code);
      first = std::min(first, row);
    }
    if (unknown.empty()) continue;
    const bool one = unknown.size() == 1;
    log().warn(
        "[csv] {}: column {}{} has {} that the training part has not, {}{} in line {}; {} as none",
        in_quotes(table.path()), in_quotes(input.name),
        part.empty() ? "" : fmt::format(" of the {} part", part),
        with_noun(unknown.size(), "category", "categories"), one ? "" : "such as ",
        in_quotes(column.names[static_cast<size_t>(column.codes[static_cast<size_t>(first)])]),
        table.line(first), one ? "it counts" : "they count");
  }
}

// Writes the input's part of every row; `out` is that of the first.
void CsvEncoder::encode_input(const CsvTable& table, const CsvEncoding::Input& input, int64_t width,
                              float* out) const {
  const CsvTable::Column& column = table.column(input.name);
  if (input.is_number) {
    for (int64_t row = 0; row < table.rows(); ++row, out += width) {
      const double value = column.numbers[static_cast<size_t>(row)];
      if (std::isnan(value) && !encoding_.fill_missing) missing(table, row, input.name);
      *out = encoding_.input_of(input, value);
    }
    return;
  }
  const std::vector<int64_t> places = places_in(input, column);
  const auto count = static_cast<int64_t>(input.categories.size());
  for (int64_t row = 0; row < table.rows(); ++row, out += width) {
    const int32_t code = column.codes[static_cast<size_t>(row)];
    if (code < 0 && !encoding_.fill_missing) missing(table, row, input.name);
    const int64_t place = code < 0 ? -1 : places[static_cast<size_t>(code)];
    if (!encoding_.one_hot)
      *out = static_cast<float>(place + 1);
    else
      for (int64_t c = 0; c < count; ++c) out[c] = c == place ? 1.0f : 0.0f;
  }
}

SampleTargets CsvEncoder::targets_of(const CsvTable& table) const {
  const CsvTable::Column& column = table.column(encoding_.target);
  SampleTargets targets;
  if (encoding_.classes.empty()) {
    targets.classes = 1;
    std::vector<float> values;
    for (int64_t row = 0; row < table.rows(); ++row) {
      const double value = column.numbers[static_cast<size_t>(row)];
      if (std::isnan(value)) missing(table, row, encoding_.target);
      values.push_back(static_cast<float>((value - encoding_.value.mean) / encoding_.value.std));
      targets.labels.push_back(row);
    }
    targets.rows = {std::move(values), 1, FloatTargets::values};
    return targets;
  }
  targets.classes = static_cast<int64_t>(encoding_.classes.size());
  std::map<std::string, int64_t, std::less<>> labels;
  for (const std::string& name : encoding_.classes)
    labels.emplace(name, static_cast<int64_t>(labels.size()));
  for (int64_t row = 0; row < table.rows(); ++row) {
    const auto name = class_in(column, row);
    if (!name) missing(table, row, encoding_.target);
    const auto found = labels.find(*name);
    FRUGAL_CHECK(found != labels.end(),
                 "[csv] {}, line {}: expected one of the {} classes of the training part in column "
                 "{}, got {}",
                 in_quotes(table.path()), table.line(row), encoding_.classes.size(),
                 in_quotes(encoding_.target), in_quotes(*name));
    targets.labels.push_back(found->second);
  }
  return targets;
}

Tensor CsvEncoder::inputs_of(const CsvTable& table) const {
  const CategoryScope scope(Category::workspace);
  const int64_t width = encoding_.width();
  Tensor inputs = Tensor::empty({table.rows(), width}, DType::f32);
  float* out = inputs.mut<float>();
  for (const CsvEncoding::Input& input : encoding_.inputs) {
    encode_input(table, input, width, out);
    out +=
        input.is_number || !encoding_.one_hot ? 1 : static_cast<int64_t>(input.categories.size());
  }
  return inputs;
}

Tensor CsvEncoder::inputs_of(const Tensor& rows) const {
  const auto columns = static_cast<int64_t>(encoding_.inputs.size());
  for (const CsvEncoding::Input& input : encoding_.inputs)
    FRUGAL_CHECK(input.is_number,
                 "[csv] expected a CSV file, since column {} is one of categories; got rows of "
                 "numbers",
                 in_quotes(input.name));
  FRUGAL_CHECK(rows.defined() && rows.dim() == 2 && rows.size(1) == columns &&
                   (rows.dtype() == DType::f32 || rows.dtype() == DType::f64),
               "[csv] expected rows [N, {}] f32 or f64, a number for each column, got {}", columns,
               describe(rows));
  const CategoryScope scope(Category::workspace);
  const std::vector<double> values = rows.to_vector();
  Tensor inputs = Tensor::empty(rows.shape(), DType::f32);
  float* out = inputs.mut<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const CsvEncoding::Input& input = encoding_.inputs[i % encoding_.inputs.size()];
    FRUGAL_CHECK(std::isfinite(values[i]) || (std::isnan(values[i]) && encoding_.fill_missing),
                 "[csv] expected finite numbers, got {} in row {}, column {}", values[i],
                 i / encoding_.inputs.size(), in_quotes(input.name));
    out[i] = encoding_.input_of(input, values[i]);
  }
  return inputs;
}

TensorDataset CsvEncoder::encode(const CsvTable& table) const {
  return TensorDataset(table.path(), inputs_of(table), targets_of(table));
}

std::vector<int64_t> csv_labels(const CsvTable& table, const CsvOptions& options) {
  const CsvTable::Column& target = table.column(target_name(table, options));
  std::vector<int64_t> labels(static_cast<size_t>(table.rows()));
  if (!has_classes(target, options, table.path())) return labels;
  std::map<std::string, int64_t> known;
  for (int64_t row = 0; row < table.rows(); ++row) {
    const auto name = class_in(target, row);
    labels[static_cast<size_t>(row)] =
        known.emplace(name.value_or(""), static_cast<int64_t>(known.size())).first->second;
  }
  // No class has a row to train and one to test on.
  if (const size_t rows = labels.size(); rows > 1 && known.size() == rows) {
    if (target.is_number && options.task == CsvOptions::Task::classes)
      throw OptionError(
          "task", fmt::format("expected values for column {} of {}, which has another number in "
                              "each of {} rows, got classes",
                              in_quotes(target.name), in_quotes(table.path()), rows));
    throw Error(fmt::format(
        "[csv] {}: expected classes that rows share in column {}, got another one in each of {} "
        "rows; {}",
        in_quotes(table.path()), in_quotes(target.name), rows,
        target.is_number ? "data.task=values predicts numbers"
                         : "data.target names the column to predict"));
  }
  return labels;
}

}  // namespace frugal::data
