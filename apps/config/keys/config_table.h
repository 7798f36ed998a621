// The table of configuration keys. Internal to the config layer.
#pragma once
#include <functional>

#include "apps/config/config.h"
#include "train/planning/bytes.h"

namespace frugal::apps {

// Who reads a key. A key that nothing reads in a run, and that is not as it is by default, is an
// error (unread_keys).
struct Reader {
  std::string who;              // "graphs": the subject of "... read it"; or "every run"
  std::vector<std::string> by;  // the keys that decide whether it is read
  std::function<bool(const Config&)> reads;  // before resolve() has filled the configuration
};

struct Field {
  std::string key;
  Json schema;  // what the value must be, as JSON Schema: validation and schema.json both use it
  std::string doc;
  std::function<Json(const Config&)> get;
  std::function<void(Config&, const Json&)> set;  // REQUIRES: the value fits `schema`
  Reader reader = {};
  bool affects_results = true;
  bool is_path = false;
  std::string option = {};  // the owner of the option, and its name there: "trainer.keep_best"
};

struct Section {
  std::string name;  // empty: the top level
  std::string doc;
  std::vector<Field> fields;
  std::string path(const Field& field) const {
    return name.empty() ? field.key : name + "." + field.key;
  }
};

const std::vector<Section>& config_sections();

// The keys that nothing reads although they have another value than their default: paths, and what
// is wrong with each, which names who reads it and the values that decide. A key with its default
// is never among them, so that the output of --print-config is a configuration, too.
struct UnreadKey {
  std::string path, what;
};
std::vector<UnreadKey> unread_keys(const Config& config);
// Which keys of unread_keys() are errors. `config` comes from `file` with `sets` on top. A key of
// the file may have lost its reader by another key of `sets`: --set compression.bits=0 leaves
// group_size without one. It is no error as long as `sets` does not change or name it. If the file
// is no configuration without `sets`, each of these keys is an error.
std::vector<UnreadKey> refused_keys(const Config& config, const Json& file,
                                    const std::vector<std::string>& sets);
bool is_read(const Config& config, const std::string& path);  // REQUIRES: a key of the table

// Does `value` fit `schema`? Throws ConfigError(path) saying what was expected. Knows type, enum,
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, items, minItems, maxItems, pattern,
// multipleOf.
void validate(const Json& schema, const Json& value, const std::string& path);
std::string describe_schema(const Json& schema);  // "an integer in [1, 8]"

}  // namespace frugal::apps
