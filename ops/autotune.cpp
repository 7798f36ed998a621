#include "ops/autotune.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/log.h"

namespace frugal::ops::autotune {
namespace {

constexpr const char* kFirstLine = "frugal autotune 1";

using Choices = std::map<std::string, std::string>;

// The choices in the file. Empty if there is no file or it has another format.
Choices read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  Choices choices;
  std::string line;
  bool valid = std::getline(file, line) && line == kFirstLine;
  while (valid && std::getline(file, line)) {
    const size_t tab = line.find('\t');
    valid = tab != std::string::npos && tab > 0 && tab + 1 < line.size() &&
            line.find('\t', tab + 1) == std::string::npos;
    if (valid) choices[line.substr(0, tab)] = line.substr(tab + 1);
  }
  if (valid) return choices;
  log().warn("[autotune] {} is not a file of measured choices; it is ignored", path);
  return {};
}

bool write(const std::string& path, const Choices& choices) {
  const std::string fresh = fmt::format("{}.{}", path, getpid());
  {
    std::ofstream file(fresh);
    file << kFirstLine << '\n';
    for (const auto& [problem, choice] : choices) file << problem << '\t' << choice << '\n';
    file.close();
    if (!file) return false;
  }
  std::error_code failed;
  std::filesystem::rename(fresh, path, failed);
  return !failed;
}

struct State {
  std::mutex mutex;
  std::string path;
  Choices choices;
  bool complained = false;

  State() {
    if (const char* named = std::getenv("FRUGAL_AUTOTUNE")) open(named);
  }
  void open(const std::string& file) {
    path = file;
    complained = false;
    choices = path.empty() ? Choices{} : read(path);
  }
};

State& state() {
  static State one;
  return one;
}

bool is_word(const std::string& text) {
  return !text.empty() && text.find_first_of("\t\n\r") == std::string::npos;
}

}  // namespace

void set_file(const std::string& path) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  s.open(path);
}

bool enabled() {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  return !s.path.empty();
}

std::optional<std::string> find(const std::string& problem) {
  State& s = state();
  const std::lock_guard lock(s.mutex);
  const auto found = s.choices.find(problem);
  if (found == s.choices.end()) return std::nullopt;
  return found->second;
}

void remember(const std::string& problem, const std::string& choice) {
  FRUGAL_ASSERT(is_word(problem) && is_word(choice));
  State& s = state();
  const std::lock_guard lock(s.mutex);
  if (s.path.empty()) return;
  // Another process may have written to the file since it was read.
  Choices all = read(s.path);
  all.merge(s.choices);
  all[problem] = choice;
  s.choices = std::move(all);
  if (write(s.path, s.choices) || s.complained) return;
  s.complained = true;
  log().warn("[autotune] {} cannot be written; choices are kept for this run", s.path);
}

}  // namespace frugal::ops::autotune
