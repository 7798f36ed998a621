// Tables of numbers and categories in CSV files, and the inputs that they become.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/formats/text_decoder.h"
#include "data/tensor_dataset.h"

namespace frugal::data {

struct CsvOptions {
  std::string target = {};             // empty: the column "target" or "label"
  std::vector<std::string> drop = {};  // columns to leave out
  // A column of categories becomes one input for each, which is 1 where it fits; or one input, the
  // category's number from 1 on.
  bool one_hot = true;
  // An empty cell: an error, or (true) the mean of the column, or no category.
  bool fill_missing = false;
  bool standardize = true;  // columns and targets of numbers: less their mean, by their deviation
  enum class Task : uint8_t { automatic, classes, values } task = Task::automatic;
};

// A table as its file has it. A column whose cells are all numbers or empty is one of numbers,
// another one of categories. Cells that are empty, or say NA, N/A, NaN or null, are missing.
class CsvTable {
 public:
  // What is known of a column before it is read.
  struct Kind {
    std::string name;
    bool is_number = true;
  };
  // Errors (with file, line and column): no header, no lines, a line with another number of cells,
  // a number that is not finite; text that is not UTF-8; those of TableReader. A number that is too
  // small for f32 is 0.
  explicit CsvTable(const std::string& path, TextEncoding encoding = TextEncoding::utf_8);
  // A table that has the columns `known` in any order. Its other columns are read as text. Errors
  // also: a known column that is not there, text in a known column of numbers.
  CsvTable(const std::string& path, const std::vector<Kind>& known,
           TextEncoding encoding = TextEncoding::utf_8);

  struct Column {
    std::string name;
    bool is_number = true;
    std::vector<double> numbers;     // numbers of the rows; NaN: missing
    std::vector<int32_t> codes;      // categories of the rows, as indices of `names`; -1: missing
    std::vector<std::string> names;  // names of categories in the order in which they occur
    bool all_whole = true;           // all numbers are whole
    // How many cells are numbers; the first one that is text, and its line; 0: there is none.
    int64_t cells_of_numbers = 0;
    std::string text;
    int64_t text_line = 0;
  };
  const std::string& path() const { return path_; }
  const std::vector<Column>& columns() const { return columns_; }
  int64_t rows() const { return static_cast<int64_t>(lines_.size()); }
  int64_t line(int64_t row) const { return lines_[static_cast<size_t>(row)]; }
  // Errors: no such column, with a list of them.
  const Column& column(const std::string& name) const;
  std::vector<Kind> kinds() const;

 private:
  void read_cells();

  std::string path_;
  TextEncoding encoding_;
  std::vector<Column> columns_;
  std::unordered_map<std::string, size_t> place_of_;  // place of a column by its name
  std::vector<int64_t> lines_;
};

// How a row becomes an input, and what is predicted of it. A run keeps this.
struct CsvEncoding {
  struct Number {
    double mean = 0, std = 1;
  };
  // A column that becomes part of an input.
  struct Input {
    std::string name;
    bool is_number = true;
    Number number = {};
    std::vector<std::string> categories = {};  // sorted
  };
  bool one_hot = true, fill_missing = false, standardize = true;  // see CsvOptions
  std::vector<Input> inputs = {};
  std::string target = {};
  std::vector<std::string> classes = {};  // names of the classes; empty where numbers are predicted
  Number value = {};      // mean and deviation of the target, where numbers are predicted
  int64_t width() const;  // numbers in an input
  // What a number of a column becomes; NaN: the column's mean.
  float input_of(const Input& input, double number) const;
};

// Makes inputs of rows, as the training rows tell.
class CsvEncoder {
 public:
  explicit CsvEncoder(CsvEncoding encoding) : encoding_(std::move(encoding)) {}
  // Errors: those of the options' columns.
  // OptionError: the task does not fit to the target, or the options leave the target out.
  // Error: the target stands alone, or lacks a cell. A column has more than 1000 categories, each
  // of which is to be one input. A cell is missing, and missing cells are not filled.
  CsvEncoder(const CsvTable& table, const CsvOptions& options,
             const std::vector<int64_t>& training_rows);

  const CsvEncoding& encoding() const { return encoding_; }
  // The columns that inputs are made of.
  std::vector<CsvTable::Kind> input_columns() const;
  // input_columns() and the target.
  std::vector<CsvTable::Kind> columns() const;
  // [rows, width] f32. A category that training has not is none. Errors: a column that is not
  // there; a missing cell, unless they are filled.
  Tensor inputs_of(const CsvTable& table) const;
  // Rows of numbers as a table has them, [rows, columns] f32 or f64, as inputs. Errors: another
  // shape or dtype; a column of categories; NaN where missing cells are not filled.
  Tensor inputs_of(const Tensor& rows) const;

  // Inputs and targets of all rows of `table`, of which training_rows are a part or which is
  // another one of the same columns. Errors: those of inputs_of(); a missing target, or a class
  // that training has not.
  TensorDataset encode(const CsvTable& table) const;

  // Warns of each column where these rows (null: all) have categories that training has not: how
  // many, and the first one. `part` says which rows they are ("validation"); empty: the file does.
  void warn_of_unknown(const CsvTable& table, const std::string& part = {},
                       const std::vector<int64_t>* rows = nullptr) const;

 private:
  void encode_input(const CsvTable& table, const CsvEncoding::Input& input, int64_t width,
                    float* out) const;
  SampleTargets targets_of(const CsvTable& table) const;
  [[noreturn]] void missing(const CsvTable& table, int64_t row, const std::string& column) const;

  CsvEncoding encoding_;
};

// The classes of the rows, for splitting them: the target's categories or whole numbers, or 0 where
// numbers are predicted. Errors: several rows, each with a class of its own.
std::vector<int64_t> csv_labels(const CsvTable& table, const CsvOptions& options);

}  // namespace frugal::data
