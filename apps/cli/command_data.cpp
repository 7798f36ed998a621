#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "apps/cli/commands.h"
#include "apps/cli/progress.h"
#include "apps/config/keys/config_error.h"
#include "apps/json.h"
#include "apps/text/wrapped.h"
#include "core/error.h"
#include "core/words/nouns.h"
#include "core/words/quoted.h"
#include "data/fetch/sources.h"

namespace frugal::apps {
namespace {

using data::FileState;
using data::Source;

// The folders that may hold downloads. New downloads go to the first one.
std::vector<std::string> folders_of(const DataArguments& arguments) {
  if (!arguments.dir.empty()) return {arguments.dir};
  std::vector<std::string> all = data::data_folders(false);
  if (all.empty()) throw ConfigError("", "data: expected --dir, $FRUGAL_DATA or $HOME");
  return all;
}

// The sources with these names. Errors: an unknown name is a mistake of the command line.
std::vector<Source> named(const std::vector<std::string>& names) {
  std::vector<Source> found;
  for (const std::string& name : names) {
    try {
      found.push_back(data::find_source(name));
    } catch (const Error& e) {
      throw ConfigError("", e.what());
    }
  }
  return found;
}

int64_t bytes_of(const Source& source) {
  int64_t bytes = 0;
  for (const auto& file : source.files)
    bytes = file.bytes < 0 || bytes < 0 ? -1 : bytes + file.bytes;
  return bytes;
}

bool has_sums(const Source& source) {
  return std::all_of(source.files.begin(), source.files.end(),
                     [](const auto& file) { return !file.sha256.empty(); });
}

// Tells how much of a source a folder has. It looks at the names of files only, so it is fast.
struct Presence {
  std::string folder;     // the first that has all, or else the first that has some
  const char* word = "";  // "there", "in parts" or ""
};
Presence presence(const Source& source, const std::vector<std::string>& folders) {
  Presence found;
  std::error_code ignored;
  for (const std::string& folder : folders) {
    size_t there = 0;
    for (const auto& file : source.results())
      there += std::filesystem::is_regular_file(folder + "/" + file.path, ignored);
    if (there == source.results().size()) return {folder, "there"};
    if (there > 0 && found.folder.empty()) found = {folder, "in parts"};
  }
  return found;
}

Json file_json(const data::SourceFile& file) {
  Json json{{"path", file.path}, {"urls", file.urls}};
  json["bytes"] = file.bytes < 0 ? Json() : Json(file.bytes);
  json["sha256"] = file.sha256.empty() ? Json() : Json(file.sha256);
  return json;
}

const char* word(FileState state) {
  switch (state) {
    case FileState::good:
      return "good";
    case FileState::unchecked:
      return "there, no checksum known";
    case FileState::missing:
      return "missing";
    case FileState::different:
      return "different";
  }
  return "";
}

// The progress bar of a download. It is drawn on a terminal only.
class Bar {
 public:
  Bar() : live_(isatty(STDERR_FILENO) != 0) {}
  ~Bar() { clear(); }
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  void show(int64_t have, int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!live_ || (now - last_ < std::chrono::milliseconds(100) && have != total)) return;
    if (have < first_ || first_ < 0) first_ = have, begin_ = now;
    last_ = now;
    constexpr int64_t kWidth = 24;
    std::string bar;
    for (int64_t i = 0; total > 0 && i < kWidth; ++i) bar += i * total < have * kWidth ? '#' : '.';
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const double rate = seconds > 0 ? static_cast<double>(have - first_) / seconds : 0;
    std::string text = readable_bytes(have);
    if (total > 0) text += " of " + readable_bytes(total);
    text += "  " + readable_bytes(static_cast<int64_t>(rate)) + "/s";
    if (total > 0 && rate > 0)
      text += "  " + readable_seconds(static_cast<double>(total - have) / rate) + " left";
    const auto room = static_cast<size_t>(std::max<int64_t>(terminal_columns() - 1, 0));
    if (!bar.empty() && text.size() + bar.size() + 3 <= room) text = "[" + bar + "] " + text;
    if (text.size() > room && total > 0 && rate > 0)  // what remains, on narrow terminals
      text = readable_seconds(static_cast<double>(total - have) / rate) + " left";
    std::fprintf(stderr, "\r\x1b[K%s", text.substr(0, room).c_str());
    drawn_ = true;
  }
  void clear() {
    if (drawn_) std::fputs("\r\x1b[K", stderr);
    drawn_ = false;
    first_ = -1;
  }

 private:
  bool live_, drawn_ = false;
  int64_t first_ = -1;
  std::chrono::steady_clock::time_point begin_{}, last_{};
};

}  // namespace

void data_list_command(const DataArguments& arguments) {
  const std::vector<std::string> folders =
      arguments.dir.empty() ? data::data_folders() : std::vector<std::string>{arguments.dir};
  Json json = Json::array();
  for (const Source& source : data::sources()) {
    const int64_t bytes = bytes_of(source);
    const auto [folder, there] = presence(source, folders);
    if (arguments.json) {
      Json files = Json::array();
      for (const auto& file : source.files) files.push_back(file_json(file));
      json.push_back({{"name", source.name},
                      {"what", source.what},
                      {"files", files},
                      {"folder", source.is_archive() ? Json(source.folder) : Json()},
                      {"found_in", folder.empty() ? Json() : Json(folder)},
                      {"state", *there == '\0' ? "missing" : there}});
      continue;
    }
    const std::string size = bytes < 0 ? "" : readable_bytes(bytes);
    const char* note = has_sums(source) ? "" : "no checksums";
    std::fputs(wrapped(fmt::format("{:17}{:>10}  {:9}{:13}{}\n", source.name, size, there, note,
                                   source.what))
                   .c_str(),
               stdout);
  }
  if (arguments.json) std::fputs((json.dump(2) + "\n").c_str(), stdout);
}

void data_check_command(const DataArguments& arguments) {
  const std::vector<std::string> folders = folders_of(arguments);
  const bool all = arguments.names.empty();
  std::error_code ignored;
  if (!arguments.dir.empty() && !std::filesystem::is_directory(arguments.dir, ignored))
    throw ConfigError("", fmt::format("--dir: expected a folder, got {}, which is not there",
                                      in_quotes(arguments.dir, 300)));
  size_t wrong = 0, sets = 0;
  for (const Source& source : all ? data::sources() : named(arguments.names)) {
    auto [folder, there] = presence(source, folders);
    if (all && *there == '\0') continue;
    if (folder.empty()) folder = folders[0];
    ++sets;
    for (const data::FileCheck& check : data::check_source(source, folder)) {
      const bool bad = check.state == FileState::missing || check.state == FileState::different;
      wrong += bad;
      std::fputs(fmt::format("{}: {}: {}{}\n", source.name, check.path, word(check.state),
                             check.detail.empty() ? "" : ": " + check.detail)
                     .c_str(),
                 stdout);
    }
  }
  FRUGAL_CHECK(sets > 0, "[data] expected datasets in {}, got none of those that are known",
               fmt::join(folders, ", "));
  FRUGAL_CHECK(wrong == 0, "[data] missing or different in {}: {}", fmt::join(folders, ", "),
               with_noun(wrong, "file"));
}

void data_fetch_command(const DataArguments& arguments) {
  const std::string folder = folders_of(arguments)[0];
  const std::vector<Source> wanted = named(arguments.names);
  const auto is_sum = [](const std::string& text) {
    return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
  };
  const bool other = !arguments.url.empty() || !arguments.sha256.empty();
  if (other && wanted.size() != 1)
    throw ConfigError("", "data fetch: expected one NAME with --url or --sha256");
  if (!arguments.sha256.empty() && arguments.sha256 != "none" && !is_sum(arguments.sha256))
    throw ConfigError("", "--sha256: expected 64 digits of 0-9 and a-f, or none");
  if (!arguments.sha256.empty() && wanted[0].files.size() != 1)
    throw ConfigError("", fmt::format("--sha256: expected a dataset of one file, got {} of {}",
                                      wanted[0].files.size(), wanted[0].name));
  if (!arguments.url.empty() && wanted[0].files.size() != 1 && !arguments.url.ends_with('/'))
    throw ConfigError(
        "", fmt::format("--url: expected an address that ends in / for the {} files of {}",
                        wanted[0].files.size(), wanted[0].name));
  Bar bar;
  data::FetchSourceOptions options;
  options.url = arguments.url;
  options.sha256 = arguments.sha256;
  options.progress = [&](const std::string&, int64_t have, int64_t total) {
    bar.show(have, total);
  };
  options.say = [&](const std::string& text) {
    bar.clear();
    std::fputs((text + "\n").c_str(), stderr);
  };
  for (const Source& source : wanted) {
    data::fetch_source(source, folder, options);
    bar.clear();
  }
}

}  // namespace frugal::apps
