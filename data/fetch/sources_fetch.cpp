#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "data/fetch/fetch.h"
#include "data/fetch/sha256.h"
#include "data/fetch/sources.h"
#include "data/formats/archive.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

namespace fs = std::filesystem;

FileCheck check_file(const SourceFile& file, const std::string& folder) {
  FileCheck check{file.path};
  const std::string path = folder + "/" + file.path;
  if (!is_file(path)) return check;
  const int64_t bytes = file_size("data", path);
  if (file.bytes >= 0 && bytes != file.bytes) {
    check.state = FileState::different;
    check.detail = fmt::format("expected {} bytes, got {}", file.bytes, bytes);
    return check;
  }
  check.state = FileState::unchecked;
  if (file.sha256.empty()) return check;
  const std::string sum = sha256_of_file(path);
  check.state = sum == file.sha256 ? FileState::good : FileState::different;
  if (sum != file.sha256)
    check.detail = fmt::format("expected SHA-256 {}, got {}", file.sha256, sum);
  return check;
}

bool is_there(FileState state) { return state == FileState::good || state == FileState::unchecked; }

// What files of that name begin with; "": anything. Servers may send a page in place of a file.
std::string beginning_of(const std::string& path) {
  const std::string kind = fs::path(path).extension().string();
  if (kind == ".npz" || kind == ".zip") return "PK";
  if (kind == ".npy") return "\x93NUMPY";
  if (kind == ".json") return "{";
  return "";
}

class Fetcher {
 public:
  Fetcher(const Source& source, const std::string& folder, const FetchSourceOptions& options)
      : source_(source), folder_(folder), options_(options) {}

  void file(const SourceFile& wanted) const {
    const std::string sum = options_.sha256.empty()     ? wanted.sha256
                            : options_.sha256 == "none" ? std::string()
                                                        : options_.sha256;
    FetchOptions fetching;
    fetching.sha256 = sum;
    // Another address or sum may mean another file.
    const bool same = options_.sha256.empty();
    fetching.bytes = same && !sum.empty() ? wanted.bytes : -1;
    fetching.begin = beginning_of(wanted.path);
    fetching.retries = options_.retries;
    fetching.delay_ms = options_.delay_ms;
    fetching.say = [&](const std::string& why) { say("  " + why); };
    if (options_.progress)
      fetching.progress = [&](int64_t have, int64_t total) {
        options_.progress(wanted.path, have, total);
      };
    const auto urls = addresses(wanted);
    for (size_t i = 0; i < urls.size(); ++i) {
      say(fmt::format("{} from {}", wanted.path, urls[i]));
      try {
        const Fetched got = fetch(urls[i], folder_ + "/" + wanted.path, fetching);
        if (sum.empty())
          say(fmt::format("  no checksum known: computed SHA-256 {}, keep it", got.sha256));
        return;
      } catch (const Error& e) {
        if (i + 1 == urls.size()) throw;
        say(std::string("  ") + e.what());
      }
    }
  }

  void say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

 private:
  std::vector<std::string> addresses(const SourceFile& wanted) const {
    if (options_.url.empty()) return wanted.urls;
    if (source_.files.size() == 1 && !options_.url.ends_with('/')) return {options_.url};
    FRUGAL_CHECK(options_.url.ends_with('/'),
                 "[data] expected a URL that ends in / for the {} files of {}, got {}",
                 source_.files.size(), source_.name, options_.url);
    return {options_.url + fs::path(wanted.path).filename().string()};
  }

  const Source& source_;
  const std::string& folder_;
  const FetchSourceOptions& options_;
};

}  // namespace

std::vector<FileCheck> check_source(const Source& source, const std::string& folder) {
  std::vector<FileCheck> checks;
  for (const SourceFile& file : source.results()) checks.push_back(check_file(file, folder));
  return checks;
}

void fetch_source(const Source& source, const std::string& folder,
                  const FetchSourceOptions& options) {
  FRUGAL_CHECK(options.sha256.empty() || source.files.size() == 1,
               "[data] expected a source of one file for a checksum, got {} with {}", source.name,
               source.files.size());
  const auto checks = check_source(source, folder);
  const auto different = std::find_if(checks.begin(), checks.end(), [](const FileCheck& check) {
    return check.state == FileState::different;
  });
  const bool complete = std::all_of(checks.begin(), checks.end(),
                                    [](const FileCheck& check) { return is_there(check.state); });
  const Fetcher fetcher(source, folder, options);
  if (complete) return fetcher.say(fmt::format("{} is there", source.name));
  FRUGAL_CHECK(different == checks.end(),
               "[data] expected {}/{} as {} has it: {}; move it away first", folder,
               different->path, source.name, different->detail);
  if (!source.is_archive()) {
    for (size_t i = 0; i < checks.size(); ++i)
      if (!is_there(checks[i].state)) fetcher.file(source.files[i]);
    return;
  }
  const SourceFile& archive = source.files.front();
  const std::string path = folder + "/" + archive.path, target = folder + "/" + source.folder;
  std::error_code ignored;
  FRUGAL_CHECK(!fs::exists(target, ignored) || fs::is_empty(target, ignored),
               "[data] expected all files of {} in {}, or no such folder, got some; move it away "
               "first",
               source.name, target);
  // What an interrupted call has left is not believed unseen.
  const FileCheck left = check_file(archive, folder);
  if (left.state == FileState::missing ||
      (left.state == FileState::different && options.sha256.empty()))
    fetcher.file(archive);
  fetcher.say(fmt::format("{} unpacked to {}", archive.path, source.folder));
  // An archive of other files leaves none of them here. Without a checksum nobody knew before what
  // it is, so it is moved away, and the next call gets another one.
  try {
    unpack(path, target, source.top, {}, [&](const std::string& made) {
      for (SourceFile file : source.results()) {
        const std::string wanted = file.path;
        file.path = fs::path(wanted).lexically_relative(source.folder).string();
        const FileCheck check = check_file(file, made);
        FRUGAL_CHECK(is_there(check.state), "[data] expected {} in the archive of {}, got {}",
                     wanted, source.name,
                     check.state == FileState::missing ? std::string("none") : check.detail);
      }
    });
  } catch (const Error& e) {
    if (check_file(archive, folder).state == FileState::good) throw;
    fs::rename(path, path + ".bad", ignored);
    throw Error(fmt::format("{}; the archive is kept as {}.bad", e.what(), path));
  }
  fs::remove(path, ignored);
}

}  // namespace frugal::data
