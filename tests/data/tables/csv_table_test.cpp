#include "data/tables/csv_table.h"

#include <doctest/doctest.h>
#include <spdlog/fmt/fmt.h>

#include <numeric>

#include "tests/data/files.h"
#include "tests/data/warnings.h"

using namespace frugal;
using namespace frugal::data;
using frugal_test::TemporaryFolder;
using frugal_test::Warnings;

namespace {

std::vector<int64_t> all_rows(const CsvTable& table) {
  std::vector<int64_t> rows(static_cast<size_t>(table.rows()));
  std::iota(rows.begin(), rows.end(), int64_t{0});
  return rows;
}

std::vector<double> sample(const Dataset& data, int64_t index) {
  return data.get(index).input.to_vector();
}

constexpr const char* kPets =
    "age,kind,weight,label\n"
    "1,cat,3.5,yes\n"
    "3,dog,4.5,no\n"
    "5,cat,5.5,no\n";

void refuses(const TemporaryFolder& folder, const std::string& text, const CsvOptions& options,
             const char* message) {
  const std::string path = folder.write("bad.csv", text);
  const auto read = [&] {
    const CsvTable table(path);
    CsvEncoder(table, options, all_rows(table)).encode(table);
  };
  CHECK_THROWS_WITH_AS(read(), doctest::Contains(message), Error);
}

}  // namespace

TEST_CASE("csv: numbers are standardized by the training rows, categories become one input each") {
  const TemporaryFolder folder;
  const CsvTable table(folder.write("a.csv", kPets));
  const CsvEncoder encoder(table, {}, {0, 1});
  CHECK(encoder.encoding().width() == 4);
  CHECK(encoder.encoding().target == "label");
  CHECK(encoder.encoding().classes == std::vector<std::string>{"no", "yes"});
  const TensorDataset data = encoder.encode(table);
  CHECK(data.size() == 3);
  CHECK(sample(data, 0) == std::vector<double>{-1, 1, 0, -1});
  CHECK(sample(data, 2) == std::vector<double>{3, 1, 0, 3});
  CHECK(data.get(0).label == 1);
  CsvOptions plain;
  plain.standardize = false;
  plain.one_hot = false;
  plain.drop = {"weight"};
  const TensorDataset other = CsvEncoder(table, plain, {0, 1}).encode(table);
  CHECK(sample(other, 1) == std::vector<double>{3, 2});
}

TEST_CASE("csv: another file has the same columns in any order; new categories are none") {
  const TemporaryFolder folder;
  const CsvTable table(folder.write("a.csv", kPets));
  const CsvEncoder encoder(table, {}, all_rows(table));
  const auto encode = [&](const std::string& text) {
    return encoder.encode(CsvTable(folder.write("b.csv", text), table.kinds()));
  };
  const TensorDataset other = encode("label,weight,extra,kind,age\nno,4.5,x,bird,3\n");
  CHECK(sample(other, 0) == std::vector<double>{0, 0, 0, 0});
  CHECK_THROWS_WITH_AS(encode("age,kind,label\n1,cat,no\n"),
                       doctest::Contains("expected a column \"weight\""), Error);
  CHECK_THROWS_WITH_AS(encode("age,kind,weight,label\nold,cat,1,no\n"),
                       doctest::Contains("line 2: expected a finite number in column \"age\", got "
                                         "\"old\""),
                       Error);
  CHECK_THROWS_WITH_AS(encode("age,kind,weight,label\n1,cat,1,maybe\n"),
                       doctest::Contains("expected one of the 2 classes of the training part in "
                                         "column \"label\", got \"maybe\""),
                       Error);
}

TEST_CASE("csv: columns and targets far from 0 keep what 32 bits would round") {
  const TemporaryFolder folder;
  std::string text = "time,target\n";
  for (int i = 0; i < 4; ++i) text += fmt::format("{},{}\n", 1.7e9 + 2 * i, 1e9 + 0.25 * i);
  const CsvTable table(folder.write("times.csv", text));
  const TensorDataset data = CsvEncoder(table, {}, all_rows(table)).encode(table);
  const std::vector<double> expected{-1.5, -0.5, 0.5, 1.5};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(sample(data, static_cast<int64_t>(i))[0] ==
          doctest::Approx(expected[i] / std::sqrt(1.25)));
    CHECK((*data.target_rows().values)[i] == doctest::Approx(expected[i] / std::sqrt(1.25)));
  }
}

TEST_CASE("csv: classes that are large whole numbers stay apart") {
  const TemporaryFolder folder;
  const CsvTable dates(
      folder.write("d.csv", "x,target\n1,20240101\n2,20240102\n3,20240101\n4,20240103\n"));
  CHECK(CsvEncoder(dates, {}, all_rows(dates)).encoding().classes ==
        std::vector<std::string>{"20240101", "20240102", "20240103"});
  const CsvTable beyond(
      folder.write("b.csv", "x,target\n1,9007199254740993\n2,9007199254740992\n"));
  CHECK_THROWS_WITH_AS(CsvEncoder(beyond, {}, all_rows(beyond)),
                       doctest::Contains("line 2: expected a class in column \"target\" that is a "
                                         "name or a whole number below 2^53"),
                       Error);
}

TEST_CASE("csv: whole numbers that hardly repeat are hardly classes") {
  const TemporaryFolder folder;
  const CsvTable prices(folder.write("a.csv", "x,target\n1,284312\n2,190000\n3,99500\n"));
  const auto refuses = [&](const CsvTable& table, const char* message) {
    CHECK_THROWS_WITH_AS(csv_labels(table, {}), doctest::Contains(message), Error);
  };
  refuses(prices,
          "a.csv\": expected classes that rows share in column \"target\", got another one in "
          "each of 3 rows; data.task=values predicts numbers");
  CsvOptions values;
  values.task = CsvOptions::Task::values;
  CHECK(csv_labels(prices, values) == std::vector<int64_t>{0, 0, 0});
  refuses(CsvTable(folder.write("b.csv", "x,target\n1,a\n2,b\n")), "data.target names the column");
  const Warnings warnings;
  const CsvTable some(folder.write("c.csv", "x,target\n1,7\n2,8\n3,7\n4,8\n"));
  CHECK(csv_labels(some, {}) == std::vector<int64_t>{0, 1, 0, 1});
  CHECK(CsvEncoder(some, {}, all_rows(some)).encoding().classes.size() == 2);
  CHECK(warnings.text().empty());
  const CsvTable most(folder.write("d.csv", "x,target\n1,7\n2,8\n3,7\n4,9\n"));
  CHECK(CsvEncoder(most, {}, all_rows(most)).encoding().classes.size() == 3);
  CHECK(
      warnings.has("the 3 different whole numbers of column \"target\" in 4 rows to train on are "
                   "taken for classes; data.task=values predicts numbers"));
}

TEST_CASE("csv: whole numbers are classes in their order, others are values") {
  const TemporaryFolder folder;
  const CsvTable whole(folder.write("a.csv", "x,target\n1,10\n2,9\n3,10\n"));
  const CsvEncoder classes(whole, {}, all_rows(whole));
  CHECK(classes.encoding().classes == std::vector<std::string>{"9", "10"});
  CHECK(classes.encode(whole).get(0).label == 1);
  const CsvTable prices(folder.write("b.csv", "x,target\n1,1.5\n2,2.5\n3,3.5\n4,4.5\n"));
  const CsvEncoder values(prices, {}, all_rows(prices));
  CHECK(values.encoding().classes.empty());
  const TensorDataset data = values.encode(prices);
  CHECK(data.target_rows().kind == FloatTargets::values);
  CHECK((*data.target_rows().values)[3] == doctest::Approx(1.5 / std::sqrt(1.25)));
  CsvOptions asked;
  asked.task = CsvOptions::Task::values;
  CHECK(CsvEncoder(whole, asked, all_rows(whole)).encoding().classes.empty());
}

TEST_CASE("csv: a number too large for f32 is an error with its place, one too small is 0") {
  const TemporaryFolder folder;
  for (const char* large : {"1e999", "-1e999", "1e39"})
    refuses(folder, std::string("a,b,label\n1,2,x\n3,") + large + ",y\n", {},
            "line 3: expected a finite number in column \"b\"");
  const CsvTable table(folder.write("a.csv", "a,label\n1e-400,x\n-1e-400,y\n1e-60,x\n2,y\n"));
  REQUIRE(table.column("a").is_number);
  CHECK(table.column("a").numbers == std::vector<double>{0, 0, 1e-60, 2});
  // Beside text, it is text.
  const CsvTable names(folder.write("b.csv", "a,label\n1e999,x\nred,y\n"));
  CHECK(!names.column("a").is_number);
}

TEST_CASE("csv: text that is not UTF-8 is refused with its place, unless its encoding is given") {
  const TemporaryFolder folder;
  const std::string latin = "name,label\nplain,x\nM\xfcller,y\n";
  refuses(folder, latin, {}, "line 3, column \"name\": expected UTF-8, got the byte fc");
  refuses(folder, "na\xefve,label\n1,x\n", {}, "line 1, column");
  const auto names_of = [&](const std::string& text, TextEncoding encoding) {
    return CsvTable(folder.write("a.csv", text), encoding).columns()[0].names;
  };
  using Texts = std::vector<std::string>;
  CHECK(names_of(latin, TextEncoding::latin_1) == Texts{"plain", "M\u00fcller"});
  CHECK(names_of("name,label\n\x80 5\x96"
                 "7,y\n",
                 TextEncoding::windows_1252) == Texts{"\u20ac 5\u20137"});
  // Each byte order, with its mark; a character beyond 16 bits; a long text, which is read in
  // parts.
  std::u16string wide = u"name,label\n\U0001F600,y\n";
  for (int i = 0; i < 200000; ++i) wide += u"\u00e9t\u00e9,x\n";
  for (const bool little : {true, false}) {
    std::string bytes = little ? "\xff\xfe" : "\xfe\xff";
    for (const char16_t unit : wide) {
      const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit & 0xff);
      bytes += little ? low : high;
      bytes += little ? high : low;
    }
    CHECK(names_of(bytes, TextEncoding::utf_16) == Texts{"\U0001F600", "\u00e9t\u00e9"});
    refuses(folder, bytes, {}, "expected UTF-8");
    CHECK_THROWS_WITH_AS(names_of(bytes.substr(0, 27), TextEncoding::utf_16),
                         doctest::Contains("expected text in UTF-16"), Error);
  }
  // The text of an encoding with zero bytes is not read as if it had one byte each.
  refuses(folder, std::string("a\0,\0b\0\n\0", 8), {}, "expected UTF-8");
}

TEST_CASE("csv: a missing cell is an error, or the mean, or no category") {
  const TemporaryFolder folder;
  const std::string text = "age,kind,label\n1,cat,a\n,dog,b\n5,NA,a\n";
  refuses(folder, text, {},
          "line 3: expected a value in column \"age\", got an empty cell; "
          "data.missing=fill");
  CsvOptions fill;
  fill.fill_missing = true;
  const CsvTable table(folder.write("a.csv", text));
  const TensorDataset data = CsvEncoder(table, fill, all_rows(table)).encode(table);
  CHECK(sample(data, 1) == std::vector<double>{0, 0, 1});
  CHECK(sample(data, 2) == std::vector<double>{1, 0, 0});
  refuses(folder, "x,label\n1,a\n2,\n", fill, "line 3: expected a target in column \"label\"");
}

TEST_CASE("csv: mistakes are named") {
  const TemporaryFolder folder;
  const auto with_target = [](const std::string& name) {
    CsvOptions options;
    options.target = name;
    return options;
  };
  refuses(folder, "", {}, "expected a header");
  refuses(folder, "a,label\n", {}, "expected lines behind the header, got none");
  refuses(folder, "a,b\n1,2\n", {}, "the columns are a, b");
  refuses(folder, kPets, with_target("lable"), "expected a column \"lable\"");
  refuses(folder, "a,label\n1\n", {}, "line 2");
  refuses(folder, "label\nx\ny\n", {}, "expected columns beside the target");
  refuses(folder, "a,label\ninf,x\n1,y\n", {}, "line 2: expected a finite number in column \"a\"");
  refuses(folder, "a,a\n1,2\n", {}, "expected columns of different names");
  CsvOptions drop;
  drop.drop = {"wieght"};
  refuses(folder, kPets, drop, "expected a column \"wieght\"");
  drop.drop = {"label"};
  refuses(folder, kPets, drop, "drop: expected other columns than the target, got \"label\"");
  CsvOptions asked;
  asked.task = CsvOptions::Task::values;
  refuses(folder, kPets, asked, "task: expected classes for column \"label\" of ");
  asked.task = CsvOptions::Task::classes;
  refuses(folder, "x,label\n1,1.5\n2,2\n", asked, "task: expected values for column \"label\" of ");
  std::string wide = "name,label\n";
  for (int i = 0; i < 1100; ++i) wide += fmt::format("n{},{}\n", i, i % 2 == 0 ? "a" : "b");
  refuses(folder, wide, {}, "has 1100 categories");
  std::string many = "x,target\n";
  for (int i = 0; i < 200; ++i) many += fmt::format("1,{}\n", i);
  refuses(folder, many, {}, "data.task says whether");
}

// In seconds, because the time is linear in the columns.
TEST_CASE("csv: 200,000 columns") {
  const TemporaryFolder folder;
  constexpr int64_t kColumns = 200'000;
  std::string header, row;
  for (int64_t i = 0; i < kColumns; ++i) {
    header += fmt::format("c{},", i);
    row += "1,";
  }
  const std::string text = header + "label\n" + row + "0\n" + row + "1\n";
  const CsvTable table(folder.write("a.csv", text));
  CsvOptions options;
  options.drop = {"c7"};
  const CsvEncoder encoder(table, options, all_rows(table));
  CHECK(encoder.encoding().width() == kColumns - 1);
  CHECK(encoder.inputs_of(CsvTable(table.path(), encoder.input_columns())).shape() ==
        Shape{2, kColumns - 1});
}

TEST_CASE("csv: 80 columns, quotes and Windows's line ends") {
  const TemporaryFolder folder;
  std::string text = "\xef\xbb\xbf", line;
  for (int i = 0; i < 80; ++i) text += fmt::format("c{},", i);
  text += "label\r\n";
  for (int row = 0; row < 5; ++row) {
    for (int i = 0; i < 80; ++i) text += fmt::format("{},", row * i);
    text += row % 2 == 0 ? "\"a, b\"\r\n" : "c\r\n";
  }
  const CsvTable table(folder.write("a.csv", text));
  const CsvEncoder encoder(table, {}, all_rows(table));
  CHECK(encoder.encoding().width() == 80);
  CHECK(encoder.encoding().classes == std::vector<std::string>{"a, b", "c"});
  CHECK(sample(encoder.encode(table), 2)[0] == 0);  // a column of one value
}
