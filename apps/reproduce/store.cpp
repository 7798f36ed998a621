#include "apps/reproduce/store.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"

#ifdef FRUGAL_SQLITE
#include <sqlite3.h>
#endif

namespace frugal::apps {

Json machine_facts() {
  struct utsname system = {};
  uname(&system);
  std::string processor = system.machine;
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      processor = line.substr(std::min(line.size(), line.find(':') + 2));
      break;
    }
  return {{"system", fmt::format("{} {}", system.sysname, system.release)},
          {"processor", processor},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) *
                               static_cast<int64_t>(sysconf(_SC_PAGESIZE))}};
}

#ifdef FRUGAL_SQLITE

namespace {

constexpr int kLayout = 1;  // the file's user_version
constexpr int kWaitMilliseconds = 10000;
constexpr const char* kMake =
    "CREATE TABLE IF NOT EXISTS results (hash TEXT NOT NULL, kind TEXT NOT NULL, seed INTEGER NOT "
    "NULL, scale TEXT NOT NULL, value TEXT NOT NULL, version TEXT NOT NULL, machine TEXT NOT NULL, "
    "date TEXT NOT NULL, seconds REAL NOT NULL, command TEXT NOT NULL, "
    "PRIMARY KEY (hash, kind, seed, scale))";

// A prepared statement with its values.
class Statement {
 public:
  Statement(sqlite3* database, const char* text, const std::string& path)
      : database_(database), path_(path) {
    check(sqlite3_prepare_v2(database, text, -1, &statement_, nullptr));
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& bind(const std::string& text) {
    check(sqlite3_bind_text(statement_, ++bound_, text.c_str(), -1, SQLITE_TRANSIENT));
    return *this;
  }
  Statement& bind(int64_t number) {
    check(sqlite3_bind_int64(statement_, ++bound_, number));
    return *this;
  }
  Statement& bind(double number) {
    check(sqlite3_bind_double(statement_, ++bound_, number));
    return *this;
  }
  bool step() {  // is there a row?
    const int status = sqlite3_step(statement_);
    if (status != SQLITE_ROW && status != SQLITE_DONE) check(status);
    return status == SQLITE_ROW;
  }
  std::string text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text == nullptr ? "" : text;
  }
  double number(int column) const { return sqlite3_column_double(statement_, column); }

 private:
  void check(int status) const {
    if (status != SQLITE_OK)
      throw Error(fmt::format("{}: {}", in_quotes(path_), sqlite3_errmsg(database_)));
  }
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
  const std::string& path_;
  int bound_ = 0;
};

}  // namespace

bool ResultStore::available() { return true; }

ResultStore::ResultStore(const std::string& path) : path_(path) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder);
  const int status = sqlite3_open(path.c_str(), &database_);
  try {
    if (status != SQLITE_OK)
      throw Error(fmt::format("{}: {}", in_quotes(path), sqlite3_errmsg(database_)));
    sqlite3_busy_timeout(database_, kWaitMilliseconds);
    // The statement ends here. While it reads, SQLite does not wait for another program that makes
    // the table at the same moment, but fails.
    const int layout = [&] {
      Statement version(database_, "PRAGMA user_version", path_);
      return version.step() ? static_cast<int>(version.number(0)) : 0;
    }();
    if (layout != 0 && layout != kLayout)
      throw Error(
          fmt::format("{}: expected results of layout {}, got {}: another version of Frugal "
                      "wrote them",
                      in_quotes(path), kLayout, layout));
    if (layout == 0) {
      run("BEGIN IMMEDIATE");
      run(kMake);
      run(fmt::format("PRAGMA user_version = {}", kLayout).c_str());
      run("COMMIT");
    }
  } catch (...) {
    sqlite3_close(database_);
    throw;
  }
}

ResultStore::~ResultStore() { sqlite3_close(database_); }

void ResultStore::run(const char* statement) { Statement(database_, statement, path_).step(); }

// One statement is a transaction of its own.
void ResultStore::put(const ResultKey& key, const StoredResult& result) {
  Statement(database_, "INSERT OR REPLACE INTO results VALUES (?,?,?,?,?,?,?,?,?,?)", path_)
      .bind(key.hash)
      .bind(key.kind)
      .bind(key.seed)
      .bind(key.scale)
      .bind(result.values.dump())
      .bind(result.version)
      .bind(result.machine.dump())
      .bind(result.date)
      .bind(result.seconds)
      .bind(result.command)
      .step();
}

bool ResultStore::has(const ResultKey& key) const { return find(key).contains(key.seed); }

std::map<int64_t, StoredResult> ResultStore::find(const ResultKey& key) const {
  Statement found(database_,
                  "SELECT seed, value, version, machine, date, seconds, command FROM results WHERE "
                  "hash = ? AND kind = ? AND scale = ?",
                  path_);
  found.bind(key.hash).bind(key.kind).bind(key.scale);
  std::map<int64_t, StoredResult> all;
  while (found.step()) {
    StoredResult& result = all[static_cast<int64_t>(found.number(0))];
    result.values = data::parse_json<Json>(found.text(1));
    result.version = found.text(2);
    result.machine = data::parse_json<Json>(found.text(3));
    result.date = found.text(4);
    result.seconds = found.number(5);
    result.command = found.text(6);
  }
  return all;
}

#else

bool ResultStore::available() { return false; }
ResultStore::ResultStore(const std::string&) {
  throw Error(
      "frugal reproduce keeps its results with SQLite, and this program was built without "
      "it: install libsqlite3-dev and build again");
}
ResultStore::~ResultStore() = default;
void ResultStore::run(const char*) {}
void ResultStore::put(const ResultKey&, const StoredResult&) {}
bool ResultStore::has(const ResultKey&) const { return false; }
std::map<int64_t, StoredResult> ResultStore::find(const ResultKey&) const { return {}; }

#endif

}  // namespace frugal::apps
