#include "apps/reproduce/table_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/config/config.h"
#include "apps/reproduce/measures.h"
#include "core/words/nearest.h"
#include "core/words/quoted.h"

namespace frugal::apps {
namespace {

namespace fs = std::filesystem;

// An object of the file. Each key is read once, and done() finds those that nobody read.
class Object {
 public:
  Object(const Json& json, std::string file, std::string place)
      : json_(json), file_(std::move(file)), place_(std::move(place)) {
    if (!json.is_object()) fail("", fmt::format("expected an object, got {}", json.type_name()));
  }

  [[noreturn]] void fail(const std::string& key, const std::string& what) const {
    throw ConfigError(file_ + ": " + at(key), what);
  }
  std::string at(const std::string& key) const {
    if (place_.empty()) return key.empty() ? "the file" : key;
    return key.empty() ? place_ : place_ + "." + key;
  }
  bool has(const std::string& key) const { return json_.contains(key); }
  const Json* find(const std::string& key) {
    known_.push_back(key);
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& get(const std::string& key) {
    const Json* value = find(key);
    if (value == nullptr) fail(key, "expected a value, the key is missing");
    return *value;
  }
  std::string text(const std::string& key) {
    const Json& value = get(key);
    if (!value.is_string() || value.get<std::string>().empty())
      fail(key, fmt::format("expected a text, got {}", printable(value.dump())));
    return value.get<std::string>();
  }
  std::string text_or(const std::string& key, const std::string& otherwise) {
    known_.push_back(key);
    return has(key) ? text(key) : otherwise;
  }
  double number(const std::string& key, double otherwise, double low) {
    const Json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number() || value->get<double>() < low)
      fail(key,
           fmt::format("expected a number of at least {}, got {}", low, printable(value->dump())));
    return value->get<double>();
  }
  double number(const std::string& key) {
    const Json& value = get(key);
    if (!value.is_number())
      fail(key, fmt::format("expected a number, got {}", printable(value.dump())));
    return value.get<double>();
  }
  std::vector<std::string> texts(const std::string& key) {
    const Json* value = find(key);
    std::vector<std::string> all;
    if (value == nullptr) return all;
    if (!value->is_array()) fail(key, "expected a list of texts");
    for (const Json& each : *value) {
      if (!each.is_string()) fail(key, "expected a list of texts");
      all.push_back(each.get<std::string>());
    }
    return all;
  }
  Object object(const std::string& key) { return {get(key), file_, at(key)}; }
  std::vector<Object> objects(const std::string& key) {
    const Json* value = find(key);
    std::vector<Object> all;
    if (value == nullptr) return all;
    if (!value->is_array()) fail(key, "expected a list of objects");
    for (size_t i = 0; i < value->size(); ++i)
      all.emplace_back((*value)[i], file_, fmt::format("{}[{}]", at(key), i));
    return all;
  }
  const Json& json() const { return json_; }
  const std::string& file() const { return file_; }
  void done() const {
    for (const auto& [key, value] : json_.items())
      if (std::find(known_.begin(), known_.end(), key) == known_.end())
        fail(printable(key),
             fmt::format("unknown key; the nearest is '{}'", nearest_name(printable(key), known_)));
  }

 private:
  const Json& json_;
  std::string file_, place_;
  std::vector<std::string> known_;
};

Sets sets_of(Object& object, const std::string& key) {
  Sets sets;
  if (!object.has(key)) {
    object.find(key);
    return sets;
  }
  const Object inner = object.object(key);
  for (const auto& [path, value] : inner.json().items()) {
    if (value.is_object())
      inner.fail(printable(path),
                 "expected a value: a key is written with dots, as in "
                 "\"compression.bits\": 2");
    sets.emplace_back(path, value);
  }
  return sets;
}

WaySets ways_of(Object& object) {
  WaySets ways;
  for (const Way way : kWays) {
    const Json* value = object.find(name_of(way));
    if (value == nullptr) continue;
    if (value->is_null())
      ways[way] = std::nullopt;
    else
      ways[way] = sets_of(object, name_of(way));
  }
  return ways;
}

CellKind kind_of(Object& object) {
  const std::string name = object.text("kind");
  std::vector<std::string> names;
  for (const CellKind kind : kCellKinds) {
    names.push_back(name_of(kind));
    if (names.back() == name) return kind;
  }
  object.fail("kind",
              fmt::format("expected one of {}, got {}", fmt::join(names, ", "), in_quotes(name)));
}

Json measure_of(Object& object) {
  if (object.find("measure") == nullptr) return Json::object();
  return object.object("measure").json();
}

Json base_of(Object& object) {
  const Json& base = object.get("base");
  if (!base.is_object() && !(base.is_string() && !base.get<std::string>().empty()))
    object.fail("base", "expected the name of a configuration, or a configuration");
  return base;
}

std::optional<TablePretraining> pretraining_of(Object& object, CellKind kind) {
  if (object.find("pretraining") == nullptr) return std::nullopt;
  if (!has_seeds(kind))
    object.fail("pretraining", "expected none: cells of this kind do not train");
  Object inner = object.object("pretraining");
  TablePretraining pretraining;
  if (inner.has("base")) pretraining.base = base_of(inner);
  inner.find("base");
  pretraining.sets = sets_of(inner, "sets");
  inner.done();
  return pretraining;
}

// Each of `names` is one of `known`.
void check_names(const Object& object, const std::string& key,
                 const std::vector<std::string>& names, const std::vector<std::string>& known) {
  for (const std::string& name : names)
    if (std::find(known.begin(), known.end(), name) == known.end())
      object.fail(
          key, fmt::format("expected one of {}, got {}", fmt::join(known, ", "), in_quotes(name)));
}

void check_measure(const Object& object, CellKind kind, const Json& measure) {
  for (const auto& [key, value] : measure.items()) {
    check_names(object, "measure", {key}, measures_of(kind));
    if (const std::string wrong = wrong_measure(key, value); !wrong.empty())
      object.fail("measure." + key,
                  fmt::format("expected {}, got {}", wrong, printable(value.dump())));
  }
}

Published published_of(Object& object, const std::vector<std::string>& columns,
                       const std::vector<std::string>& metrics) {
  Published published;
  published.column = object.has("column") ? object.text("column") : (object.find("column"), "");
  check_names(object, "column", {published.column}, columns);
  published.metric = object.text("metric");
  check_names(object, "metric", {published.metric}, metrics);
  published.value = object.number("value");
  published.unit = object.text_or("unit", "");
  const std::vector<std::string> units = units_of(metric_named(published.metric));
  if (std::find(units.begin(), units.end(), published.unit) == units.end())
    object.fail(
        "unit",
        fmt::format("expected {}, got {}",
                    units.size() == 1
                        ? std::string("none")
                        : fmt::format("one of {}", fmt::join(units.begin() + 1, units.end(), ", ")),
                    in_quotes(published.unit)));
  published.where = object.text("where");
  published.note = object.text_or("note", "");
  object.done();
  return published;
}

TableScale scale_of(Object& object, const TableFile& table) {
  TableScale scale;
  Object needs = object.object("needs");
  scale.data = needs.texts("data");
  scale.hours = needs.number("hours", 0, 0);
  scale.device = needs.text_or("device", "cpu");
  check_names(needs, "device", {scale.device}, {"meta", "cpu", "cuda"});
  scale.memory = static_cast<int64_t>(needs.number("gibibytes", 0, 0) * 1073741824.0);
  needs.done();
  scale.seeds = static_cast<int64_t>(object.number("seeds", 1, 1));
  if (object.has("base")) scale.base = base_of(object);
  object.find("base");
  scale.sets = sets_of(object, "sets");
  scale.pretraining = pretraining_of(object, table.kind);
  scale.measure = measure_of(object);
  scale.rows = object.texts("rows");
  scale.columns = object.texts("columns");
  std::vector<std::string> rows, columns;
  for (const TableRow& row : table.rows) rows.push_back(row.name);
  for (const TableColumn& column : table.columns) columns.push_back(column.name);
  check_names(object, "rows", scale.rows, rows);
  check_names(object, "columns", scale.columns, columns);
  object.done();
  return scale;
}

TableColumn column_of(Object& object, const TableFile& table) {
  TableColumn column;
  column.name = object.text("name");
  column.part = object.text_or("part", "");
  if (!column.part.empty() && !has_parts(table.kind))
    object.fail("part", "expected no part of values in a table of this kind");
  column.sets = sets_of(object, "sets");
  column.ways = ways_of(object);
  object.done();
  return column;
}

template <class Named>
void check_different(const Object& object, const char* key, const std::vector<Named>& all) {
  std::set<std::string> names;
  for (const Named& each : all)
    if (!names.insert(each.name).second)
      object.fail(key, fmt::format("expected different names, got {} twice", in_quotes(each.name)));
}

TableSearch search_of(Object& object) {
  TableSearch search;
  for (Object& each : object.objects("candidates")) {
    TableSearch::Candidate& candidate = search.candidates.emplace_back();
    candidate.name = each.text("name");
    candidate.sets = sets_of(each, "sets");
    each.done();
  }
  if (search.candidates.size() < 2) object.fail("candidates", "expected at least two");
  check_different(object, "candidates", search.candidates);
  const Json& shares = object.get("shares");
  const char* const kShares = "expected ascending numbers above 0, of which the last is 1";
  if (!shares.is_array() || shares.empty()) object.fail("shares", kShares);
  for (const Json& share : shares) {
    const double least = search.shares.empty() ? 0 : search.shares.back();
    if (!share.is_number() || share.get<double>() <= least) object.fail("shares", kShares);
    search.shares.push_back(share.get<double>());
  }
  if (search.shares.back() != 1) object.fail("shares", kShares);
  search.tolerance = object.number("tolerance", 0, 0);
  object.done();
  return search;
}

TableRow row_of(Object& object, const TableFile& table, const std::vector<std::string>& columns) {
  TableRow row;
  row.name = object.text("name");
  if (object.has("kind")) row.kind = kind_of(object);
  object.find("kind");
  if (object.has("base")) row.base = base_of(object);
  object.find("base");
  if (object.has("seeds")) row.seeds = static_cast<int64_t>(object.number("seeds", 1, 1));
  object.find("seeds");
  row.sets = sets_of(object, "sets");
  row.pretraining = pretraining_of(object, row.kind.value_or(table.kind));
  row.measure = measure_of(object);
  check_measure(object, row.kind.value_or(table.kind), row.measure);
  row.columns = object.texts("columns");
  check_names(object, "columns", row.columns, columns);
  row.ways = ways_of(object);
  if (object.has("search")) {
    if (row.kind.value_or(table.kind) != CellKind::accuracy)
      object.fail("search", "expected a row of kind accuracy, whose cells are trainings");
    Object search = object.object("search");
    row.search = search_of(search);
  }
  object.find("search");
  row.unavailable = object.text_or("unavailable", "");
  const auto metrics = metric_names(row.kind.value_or(table.kind));
  for (Object& each : object.objects("published"))
    row.published.push_back(published_of(each, columns, metrics));
  if (!row.unavailable.empty() && row.published.empty())
    object.fail("unavailable", "expected a published value beside it: the row shows nothing else");
  object.done();
  return row;
}

}  // namespace

std::string name_of(CellKind kind) {
  switch (kind) {
    case CellKind::memory:
      return "memory";
    case CellKind::accuracy:
      return "accuracy";
    case CellKind::throughput:
      return "throughput";
    case CellKind::variance:
      return "variance";
    case CellKind::largest:
      break;
  }
  return "largest";
}

std::string name_of(Scale scale) {
  switch (scale) {
    case Scale::smoke:
      return "smoke";
    case Scale::reduced:
      return "reduced";
    case Scale::full:
      break;
  }
  return "full";
}

Scale scale_named(const std::string& name) {
  for (const Scale scale : kScales)
    if (name_of(scale) == name) return scale;
  throw ConfigError(
      "", fmt::format("--scale: expected smoke, reduced or full, got {}", in_quotes(name)));
}

std::string name_of(Way way) { return way == Way::as_published ? "as_published" : "ours"; }
std::string title_of(Way way) { return way == Way::as_published ? "as published" : "ours"; }

std::optional<Scale> TableFile::scale_for(Scale wanted) const {
  if (scales.contains(wanted)) return wanted;
  if (wanted == Scale::reduced && scales.contains(Scale::full)) return Scale::full;
  return std::nullopt;
}

TableFile read_table(const std::string& path) {
  const Json json = read_json(path);
  const fs::path file(path);
  Object object(json, file.filename().string(), "");
  TableFile table;
  table.name = file.stem().string();
  table.path = path;
  table.title = object.text("title");
  table.paper = object.text("paper");
  table.place = object.text("place");
  table.text = object.text("text");
  table.kind = kind_of(object);
  table.base = base_of(object);
  table.sets = sets_of(object, "sets");
  table.pretraining = pretraining_of(object, table.kind);
  table.measure = measure_of(object);
  check_measure(object, table.kind, table.measure);
  table.ways = ways_of(object);
  for (Object& each : object.objects("columns")) table.columns.push_back(column_of(each, table));
  if (table.columns.empty()) table.columns.emplace_back();
  check_different(object, "columns", table.columns);
  std::vector<std::string> columns;
  for (const TableColumn& column : table.columns) columns.push_back(column.name);
  for (Object& each : object.objects("rows")) table.rows.push_back(row_of(each, table, columns));
  if (table.rows.empty()) object.fail("rows", "expected at least one row");
  check_different(object, "rows", table.rows);
  std::vector<std::string> metrics = metric_names(table.kind);
  for (const TableRow& row : table.rows)
    for (const std::string& metric : metric_names(row.kind.value_or(table.kind)))
      if (std::find(metrics.begin(), metrics.end(), metric) == metrics.end())
        metrics.push_back(metric);
  table.show = object.texts("show");
  if (table.show.empty()) object.fail("show", "expected a list of metrics");
  check_names(object, "show", table.show, metrics);
  if (object.has("plot")) {
    Object plot = object.object("plot");
    table.plot = TablePlot{plot.text("x"), plot.text("y")};
    check_names(plot, "x", {table.plot->x}, metrics);
    check_names(plot, "y", {table.plot->y}, metrics);
    plot.done();
  }
  object.find("plot");
  Object scales = object.object("scales");
  for (const Scale scale : kScales) {
    if (scales.has(name_of(scale))) {
      Object inner = scales.object(name_of(scale));
      table.scales[scale] = scale_of(inner, table);
      check_measure(inner, table.kind, table.scales[scale].measure);
    }
    scales.find(name_of(scale));
  }
  scales.done();
  if (table.scales.empty()) object.fail("scales", "expected at least one of smoke, reduced, full");
  if (std::all_of(table.rows.begin(), table.rows.end(),
                  [](const TableRow& row) { return !row.unavailable.empty(); }))
    object.fail("rows", "expected a row that can be measured");
  object.find("$schema");
  object.done();
  return table;
}

std::vector<TableFile> read_tables(const std::string& folder) {
  std::error_code none;
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  if (none)
    throw ConfigError("", fmt::format("--tables: cannot read the folder {}", in_quotes(folder)));
  if (paths.empty())
    throw ConfigError("", fmt::format("--tables: expected tables (NAME.json) in the folder {}",
                                      in_quotes(folder)));
  std::sort(paths.begin(), paths.end());
  std::vector<TableFile> tables;
  for (const std::string& path : paths) tables.push_back(read_table(path));
  return tables;
}

std::string tables_folder() {
  std::error_code none;
  if (fs::is_directory("configs/reproduce", none)) return "configs/reproduce";
  // Beside an installed program, or above one in the folder of a build.
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  fs::path last;
  for (fs::path above = program.parent_path(); !above.empty() && above != last;
       last = above, above = above.parent_path())
    for (const char* place : {"share/frugal/configs/reproduce", "configs/reproduce"})
      if (fs::is_directory(above / place, none)) return (above / place).string();
  throw ConfigError(
      "",
      fmt::format("--tables: expected a folder of tables: there is no configs/reproduce here, and "
                  "none above the program in {}, nor in share/frugal there",
                  in_quotes(program.parent_path().string())));
}

}  // namespace frugal::apps
