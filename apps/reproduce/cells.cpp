#include "apps/reproduce/cells.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "apps/config/data/make_data.h"
#include "apps/config/keys/config_table.h"
#include "apps/reproduce/measures.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/fetch/sha256.h"
#include "data/formats/atomic_file.h"
#include "data/formats/file_bytes.h"

namespace frugal::apps {
namespace {

constexpr size_t kShortHash = 12;
constexpr const char* kProfile = "compression.advanced.profile";

// Version of the default configuration. Raise it when a default that affects results changes:
// hashes cover only keys that differ from the defaults, so a new key leaves old results valid.
constexpr int kDefaults = 4;
// Version of the order of batches of texts, which trainings with texts of many lengths have.
constexpr int kTextBatches = 3;

// Later values of a path replace earlier ones, at the earlier place. Null takes the path away.
void add(Sets& all, const Sets& more) {
  for (const auto& [path, value] : more) {
    const auto found = std::find_if(
        all.begin(), all.end(), [&path = path](const auto& each) { return each.first == path; });
    if (found == all.end() && !value.is_null())
      all.emplace_back(path, value);
    else if (found != all.end() && value.is_null())
      all.erase(found);
    else if (found != all.end())
      found->second = value;
  }
}

// A text is written without quotes where it stays a text then.
std::string assignment(const std::string& path, const Json& value) {
  const bool plain = value.is_string() && !Json::accept(value.get<std::string>());
  return path + "=" + (plain ? value.get<std::string>() : value.dump());
}

// What `ways`, one place of the file, sets for a way. Null: the way is not there. An empty
// optional: the way has no cells there.
const std::optional<Sets>* find(const WaySets& ways, Way way) {
  const auto found = ways.find(way);
  return found == ways.end() ? nullptr : &found->second;
}

bool among(const std::vector<std::string>& names, const std::string& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// What differs from the defaults. The place of the data changes no result. Threads and workers
// change none of a training, but the memory that a step is counted to take.
Json deciding(const Config& config, bool counts_memory) {
  static const Config defaults;
  Json all = Json::object();
  for (const Section& section : config_sections())
    for (const Field& field : section.fields) {
      const std::string path = section.path(field);
      const bool decides =
          field.affects_results || (counts_memory && (path == "threads" || path == "data.workers"));
      if (!decides || path == "seed") continue;
      const Json value = field.get(config);
      if (value != field.get(defaults)) all[path] = value;
    }
  return all;
}

// The configuration of the cell's base with its sets.
Config config_of(const Cell& cell) {
  Json document = cell.document;
  apply_sets(document, cell.sets);
  // The folder's name depends on where the results lie, so the configuration has another one.
  if (cell.pretraining != nullptr) apply_sets(document, {"model.weights=pre-training"});
  Config config = parse_config(document);
  check_set_keys(config, cell.sets);
  return config;
}

void move_to(Cell& cell, const CellPlace& place) {
  if (place.empty() || !has_seeds(cell.kind)) return;
  if (!place.device.empty()) cell.sets.push_back("device=" + place.device);
  if (place.device.starts_with("cuda")) cell.sets.emplace_back("cuda_graphs=true");
  if (!place.precision.empty()) cell.sets.push_back("precision=" + place.precision);
  cell.config = config_of(cell);
}

// Are batches made of texts of many lengths? A stream of tokens has windows of one length.
bool orders_texts(const Config& config) {
  const DataTraits traits = data_traits(config);
  return traits.kind == BatchSpec::Kind::sequences && !traits.is_text;
}

// What the hash of a cell covers. A profile counts by what is in it, wherever it lies.
Json hashed(const Cell& cell) {
  Json all = {{"kind", name_of(cell.kind)},
              {"measure", cell.measure},
              {"defaults", kDefaults},
              {"config", deciding(cell.config, !has_seeds(cell.kind))}};
  if (has_seeds(cell.kind) && orders_texts(cell.config)) all["text_batches"] = kTextBatches;
  if (const std::string& profile = cell.config.compression.profile; !profile.empty())
    all["profile"] = data::sha256_hex(read_json(profile).dump());
  if (cell.pretraining != nullptr) all["pretraining"] = cell.pretraining->hash;
  return all;
}

// The configuration that a table calls `name`: beside it, in the folder above, as for tables of
// configs/reproduce, or among the configurations that the program has.
std::string file_of_base(const TableFile& table, const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(table.path).parent_path();
  std::vector<fs::path> places{folder, folder / ".."};
  try {
    places.push_back(fs::path(tables_folder()) / "..");
  } catch (const ConfigError&) {  // the program has none
  }
  for (const fs::path& place : places) {
    std::string path = (place / name).lexically_normal().string();
    if (data::is_file(path)) return path;
  }
  throw ConfigError(
      "", fmt::format("{}: expected the name of a file beside the table, above it or in the folder "
                      "configs as its base, got {}, which is in none of them",
                      in_quotes(table.path), in_quotes(name)));
}

Cell cell_of(const TableFile& table, const TableRow& row, const TableColumn& column, Way way,
             Scale scale, int64_t seeds, const CellPlace& place, Sets sets,
             const std::shared_ptr<const Cell>& pretraining) {
  Cell cell;
  cell.pretraining = pretraining;
  cell.table = table.name;
  cell.row = row.name;
  cell.column = column.name;
  cell.file = table.path;
  cell.part = column.part;
  cell.way = way;
  cell.scale = scale;
  cell.kind = row.kind.value_or(table.kind);
  const TableScale& part = table.scales.at(scale);
  cell.memory = part.memory;
  cell.seeds = has_seeds(cell.kind) ? (seeds > 0 ? seeds : row.seeds.value_or(part.seeds)) : 1;
  for (const Json& measure : {table.measure, part.measure, row.measure})
    for (const auto& [key, value] : measure.items()) cell.measure[key] = value;
  // A row of another kind has no use for the table's measures.
  for (auto it = cell.measure.begin(); it != cell.measure.end();)
    it = among(measures_of(cell.kind), it.key()) && !measures_of(cell.kind).empty()
             ? std::next(it)
             : cell.measure.erase(it);
  const Json base = row.base.value_or(part.base.value_or(table.base));
  if (base.is_string()) {
    cell.base = file_of_base(table, base.get<std::string>());
    cell.document = read_json(cell.base);
  } else {
    cell.document = base;
  }
  // What trains runs beside others, one thread each. This takes less time than one after the other
  // with all threads, and results do not depend on the number of cores.
  if (has_seeds(cell.kind)) {
    Sets one = {{"threads", 1}};
    add(one, sets);
    sets = one;
  }
  for (auto& [path, value] : sets) {
    if (path == kProfile && value.is_string())  // it lies beside the table
      value = (std::filesystem::path(table.path).parent_path() / value.get<std::string>())
                  .lexically_normal()
                  .string();
    cell.sets.push_back(assignment(path, value));
  }
  cell.config = config_of(cell);
  cell.hash = data::sha256_hex(hashed(cell).dump());
  move_to(cell, place);
  return cell;
}

// The training that the cells of a row start from; none: they start from nothing.
std::shared_ptr<const Cell> pretraining_of(const TableFile& table, const TableRow& row, Scale scale,
                                           const CellPlace& place) {
  const bool trains = has_seeds(row.kind.value_or(table.kind));
  if (!row.pretraining && !(table.pretraining && trains)) return nullptr;
  TableRow own;
  own.name = row.name + ", pre-training";
  own.kind = CellKind::accuracy;
  own.base = Json();
  Sets sets;
  for (const auto* part :
       {&table.pretraining, &table.scales.at(scale).pretraining, &row.pretraining})
    if (*part) {
      if ((*part)->base) own.base = (*part)->base;
      add(sets, (*part)->sets);
    }
  const std::string place_of_errors =
      fmt::format("{}.json: {}, scale {}", table.name, own.name, name_of(scale));
  if (own.base->is_null())
    throw ConfigError(place_of_errors,
                      "expected a base in the pretraining of the row or the table");
  try {
    return std::make_shared<const Cell>(
        cell_of(table, own, {}, Way::ours, scale, 1, place, sets, nullptr));
  } catch (const ConfigError& e) {
    throw ConfigError(place_of_errors, e.what());
  }
}

// The trainings of a search, and its hash, which theirs make.
void add_search(Cell& cell, const TableFile& table, const TableRow& row, const TableColumn& column,
                int64_t seeds, const CellPlace& place, const Sets& sets) {
  auto search = std::make_shared<CellSearch>();
  search->tolerance = row.search->tolerance;
  if (cell.config.train.steps > 0)
    throw ConfigError("train.steps", "expected 0 with a search, whose rounds are shares of epochs");
  Json hashes = Json::array();
  for (const double share : row.search->shares) {
    std::vector<Cell>& round = search->rounds.emplace_back();
    const auto epochs = std::llround(share * static_cast<double>(cell.config.train.epochs));
    for (const TableSearch::Candidate& candidate : row.search->candidates) {
      Sets own = sets;
      add(own, candidate.sets);
      add(own, {{"train.epochs", std::max<int64_t>(epochs, 1)}});
      round.push_back(
          cell_of(table, row, column, cell.way, cell.scale, seeds, place, own, cell.pretraining));
      round.back().row += fmt::format(", {}, {}", candidate.name,
                                      with_noun(round.back().config.train.epochs, "epoch"));
      hashes.push_back(round.back().hash);
    }
  }
  for (const TableSearch::Candidate& candidate : row.search->candidates)
    search->names.push_back(candidate.name);
  cell.hash = data::sha256_hex(Json({{"search", hashes}, {"tolerance", search->tolerance}}).dump());
  cell.search = search;
}

}  // namespace

std::string Cell::title() const {
  return row + (column.empty() ? "" : ", " + column) + ", " + title_of(way);
}

std::string base_of(const Cell& cell, const std::string& out) {
  if (!cell.base.empty()) return cell.base;
  return out + "/bases/" + data::sha256_hex(cell.document.dump()).substr(0, kShortHash) + ".json";
}

void save_base(const Cell& cell, const std::string& out) {
  if (!cell.base.empty()) return;
  std::filesystem::create_directories(out + "/bases");
  // Whole at any time: the cells beside this one may read the same base.
  data::atomic_write(base_of(cell, out), cell.document.dump(2) + "\n");
}

std::string run_of(const Cell& cell, const std::string& out, int64_t seed) {
  return fmt::format("{}/runs/{}-{}-{}", out, cell.table, cell.hash.substr(0, kShortHash), seed);
}

std::vector<std::string> command_of(const Cell& cell, const std::string& out, int64_t seed) {
  if (cell.search != nullptr)
    return {"reproduce", cell.file, "--scale", name_of(cell.scale), "--out", out};
  std::vector<std::string> words =
      arguments_of(cell, base_of(cell, out), seed, run_of(cell, out, seed));
  if (cell.pretraining != nullptr)
    words.insert(words.end(), {"--set", "model.weights=" + run_of(*cell.pretraining, out, 1)});
  return words;
}

std::vector<Cell> cells_of(const TableFile& table, Scale scale, int64_t seeds,
                           const CellPlace& place) {
  std::vector<Cell> cells;
  const TableScale& part = table.scales.at(scale);
  for (const TableRow& row : table.rows) {
    if (!row.unavailable.empty() || !among(part.rows, row.name)) continue;
    const auto pretraining = pretraining_of(table, row, scale, place);
    for (const TableColumn& column : table.columns) {
      if (!among(part.columns, column.name) || !among(row.columns, column.name)) continue;
      for (const Way way : kWays) {
        Sets sets = table.sets;
        add(sets, part.sets);
        add(sets, row.sets);
        add(sets, column.sets);
        bool left_out = false;
        for (const WaySets* ways : {&table.ways, &row.ways, &column.ways})
          if (const auto* own = find(*ways, way)) {
            left_out = left_out || !own->has_value();
            if (own->has_value()) add(sets, **own);
          }
        if (left_out) continue;
        try {
          cells.push_back(cell_of(table, row, column, way, scale, seeds, place, sets, pretraining));
          if (row.search) add_search(cells.back(), table, row, column, seeds, place, sets);
        } catch (const ConfigError& e) {
          throw ConfigError(fmt::format("{}.json: {}, {}, {}, scale {}", table.name, row.name,
                                        column.name, title_of(way), name_of(scale)),
                            e.what());
        }
      }
    }
  }
  return cells;
}

}  // namespace frugal::apps
