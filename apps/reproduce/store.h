// The results of cells in one SQLite file. A result belongs to a hash of the configuration and of
// how it was measured, so a cell whose configuration changed has none. Each write is a transaction.
// Thread safety: one thread. Several processes may open the same file.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "apps/json.h"

struct sqlite3;

namespace frugal::apps {

struct ResultKey {
  std::string hash, kind;
  int64_t seed = 0;
  std::string scale;
};

struct StoredResult {
  Json values = Json::object();
  std::string version;  // Frugal's
  Json machine = Json::object();
  std::string date;  // "2026-11-23 07:30:00", UTC
  double seconds = 0;
  std::string command;
};

class ResultStore {
 public:
  // Was the program built with SQLite?
  static bool available();

  // Makes the file and its folder where they are missing. Errors: no SQLite; a file that is no
  // store, that another version wrote, or that cannot be written.
  explicit ResultStore(const std::string& path);
  ~ResultStore();
  ResultStore(const ResultStore&) = delete;
  ResultStore& operator=(const ResultStore&) = delete;

  void put(const ResultKey& key, const StoredResult& result);  // replaces an earlier one
  bool has(const ResultKey& key) const;
  // The results of all seeds of `key`, by seed.
  std::map<int64_t, StoredResult> find(const ResultKey& key) const;

 private:
  void run(const char* statement);
  sqlite3* database_ = nullptr;
  std::string path_;
};

// {"system", "processor", "cores", "memory_bytes"}.
Json machine_facts();

}  // namespace frugal::apps
