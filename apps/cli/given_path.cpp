#include "apps/cli/given_path.h"

#include <filesystem>

#include "apps/config/keys/config_error.h"
#include "core/words/quoted.h"
#include "train/run/run_folder.h"

namespace frugal::apps {

std::string check_named(const std::string& name) {
  return name.empty() ? "expected a name, got an empty one" : "";
}

std::string check_there(const std::string& name) {
  std::error_code ignored;
  if (name.empty() || std::filesystem::exists(name, ignored)) return check_named(name);
  return fmt::format("expected a file or a folder, got {}, which is not there",
                     in_quotes(name, 300));
}

void must_be_there(const char* option, const std::string& name) {
  if (const std::string wrong = check_there(name); !wrong.empty())
    throw ConfigError("", fmt::format("{}: {}", option, wrong));
}

std::string check_place(const std::string& name) {
  std::error_code ignored;
  if (name.empty()) return check_named(name);
  if (std::filesystem::is_directory(name, ignored))
    return fmt::format("expected a file to write, got the folder {}", in_quotes(name, 300));
  if (train::is_needed_by_run(name))
    return fmt::format("expected another place than {}, which a run needs", in_quotes(name, 300));
  const auto folder = std::filesystem::absolute(name, ignored).parent_path();
  if (std::filesystem::is_directory(folder, ignored)) return "";
  return fmt::format("expected a file in a folder that is there, got {}", in_quotes(name, 300));
}

std::string check_folder(const std::string& name) {
  std::error_code ignored;
  for (auto path = std::filesystem::absolute(name, ignored); !name.empty();
       path = path.parent_path()) {
    if (std::filesystem::is_directory(path, ignored)) return "";
    if (std::filesystem::exists(path, ignored) || !path.has_relative_path())
      return fmt::format("expected a folder, got {}, where a file is", in_quotes(name, 300));
  }
  return check_named(name);
}

}  // namespace frugal::apps
