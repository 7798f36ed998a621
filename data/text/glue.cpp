#include "data/text/glue.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "core/error.h"
#include "core/parallel.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/table.h"
#include "data/missing_files.h"
#include "data/text/unicode.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

struct Row {
  GlueTask task;
  bool header = true;
  // Names of columns; without a header, their numbers.
  std::string first, second, label;
  bool named_labels = false;  // the file has names of labels; otherwise 0 and 1
};

const std::vector<Row>& rows() {
  const std::vector<std::string> entailment{"entailment", "not_entailment"};
  static const std::vector<Row> table{
      {{"SST-2", false, {"negative", "positive"}, ""}, true, "sentence", "", "label", false},
      {{"CoLA", false, {"unacceptable", "acceptable"}, "matthews"}, false, "3", "", "1", false},
      {{"MRPC", true, {"not_equivalent", "equivalent"}, "f1"},
       true,
       "#1 String",
       "#2 String",
       "Quality",
       false},
      {{"RTE", true, entailment, ""}, true, "sentence1", "sentence2", "label", true},
      {{"QNLI", true, entailment, ""}, true, "question", "sentence", "label", true},
      {{"MNLI", true, {"entailment", "neutral", "contradiction"}, ""},
       true,
       "sentence1",
       "sentence2",
       "gold_label",
       true}};
  return table;
}

const Row& row_of(const std::string& name) {
  const auto& table = rows();
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const Row& row) { return row.task.name == name; });
  FRUGAL_CHECK(at != table.end(), "[glue] expected one of {}, got {}",
               fmt::join(glue_tasks(), ", "), in_quotes(name));
  return *at;
}

constexpr const char* kMrpcText = "msr_paraphrase_train.txt";
constexpr const char* kMrpcIds = "dev_ids.tsv";

bool has_mrpc(const std::string& folder) {
  return is_file(folder + "/" + kMrpcText) && is_file(folder + "/" + kMrpcIds);
}

std::string find_folder(const std::string& folder, const std::string& name,
                        const std::string& file) {
  for (const std::string& where : {folder, folder + "/" + name, folder + "/glue/" + name})
    if (is_file(where + "/" + file) || (name == "MRPC" && has_mrpc(where))) return where;
  throw MissingFiles(fmt::format("[glue] expected {0} of {1} in {2}, its {1} or glue/{1}, got none",
                                 file, name, folder));
}

using KeepRow = std::function<bool(const TableReader&)>;

std::vector<GlueExample> read_table(const std::string& path, const Row& row, const KeepRow& keep) {
  TableReader table("glue", path, TableKind::tsv);
  if (row.header) table.read_header();
  const size_t columns = row.header ? table.header().size() : 4;
  const auto column = [&](const std::string& name) {
    return row.header ? table.column(name) : static_cast<size_t>(std::stoi(name));
  };
  const size_t first = column(row.first), label = column(row.label);
  const size_t second = row.task.pair ? column(row.second) : first;
  std::vector<GlueExample> examples;
  while (table.next()) {
    table.expect_fields(columns);
    if (keep && !keep(table)) continue;
    const auto& fields = table.fields();
    GlueExample& example = examples.emplace_back();
    table.expect_utf8(fields[first], row.first, kMakeUtf8);
    table.expect_utf8(fields[second], row.task.pair ? row.second : row.first, kMakeUtf8);
    example.first = fields[first];
    if (row.task.pair) example.second = fields[second];
    const auto& names = row.task.labels;
    std::vector<std::string> known = names;
    if (!row.named_labels) known = {"0", "1"};
    const auto at = std::find(known.begin(), known.end(), fields[label]);
    FRUGAL_CHECK(at != known.end(), "[glue] expected a label among {} in line {} of {}, got {}",
                 fmt::join(known, ", "), table.line(), path, in_quotes(fields[label]));
    example.label = at - known.begin();
  }
  FRUGAL_CHECK(!examples.empty(), "[glue] expected examples in {}, got none", path);
  return examples;
}

// GLUE's own split of Microsoft's training file: the pairs of dev_ids.tsv are for development.
std::vector<GlueExample> read_mrpc(const std::string& folder, const Row& row, bool dev) {
  using Ids = std::pair<std::string, std::string>;
  std::set<Ids> wanted, seen;
  const std::string ids_path = folder + "/" + kMrpcIds, text_path = folder + "/" + kMrpcText;
  TableReader ids("glue", ids_path, TableKind::tsv);
  while (ids.next()) {
    ids.expect_fields(2);
    wanted.emplace(ids.fields()[0], ids.fields()[1]);
  }
  const auto keep = [&](const TableReader& table) {
    const Ids pair{table.fields()[table.column("#1 ID")], table.fields()[table.column("#2 ID")]};
    const bool in_dev = wanted.contains(pair);
    if (in_dev) seen.insert(pair);
    return in_dev == dev;
  };
  std::vector<GlueExample> examples = read_table(text_path, row, keep);
  FRUGAL_CHECK(seen.size() == wanted.size(), "[glue] expected every pair of {} in {}, got {} of {}",
               ids_path, text_path, seen.size(), wanted.size());
  return examples;
}

}  // namespace

std::vector<std::string> glue_tasks() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.push_back(row.task.name);
  return names;
}

const GlueTask& glue_task(const std::string& name) { return row_of(name).task; }

std::vector<GlueExample> read_glue(const std::string& folder, const std::string& name,
                                   GlueSplit split) {
  const Row& row = row_of(name);
  FRUGAL_CHECK(split != GlueSplit::dev_mismatched || name == "MNLI",
               "[glue] expected MNLI for the mismatched split, got {}", name);
  std::string file;
  switch (split) {
    case GlueSplit::train:
      file = "train.tsv";
      break;
    case GlueSplit::dev:
      file = name == "MNLI" ? "dev_matched.tsv" : "dev.tsv";
      break;
    case GlueSplit::dev_mismatched:
      file = "dev_mismatched.tsv";
      break;
  }
  const std::string where = find_folder(folder, name, file);
  if (name == "MRPC" && has_mrpc(where)) return read_mrpc(where, row, split == GlueSplit::dev);
  return read_table(where + "/" + file, row, {});
}

std::vector<Sequence> encode_glue(const std::vector<GlueExample>& examples, const GlueTask& task,
                                  const Tokenizer& tokenizer, int64_t max_length) {
  std::vector<Sequence> sequences(examples.size());
  const auto count = static_cast<int64_t>(examples.size());
  parallel_for(0, count, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const GlueExample& example = examples[static_cast<size_t>(i)];
      TokenIds first = tokenizer.encode(example.first);
      TokenPair tokens =
          task.pair ? tokenizer.pair(std::move(first), tokenizer.encode(example.second), max_length)
                    : tokenizer.single(first, max_length);
      sequences[static_cast<size_t>(i)] = {std::move(tokens.ids), tokens.second, example.label};
    }
  });
  return sequences;
}

}  // namespace frugal::data
