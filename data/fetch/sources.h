// The table of known datasets: where their files come from. Checks a folder for them and fetches
// them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace frugal::data {

struct SourceFile {
  std::string path;               // below the data folder
  std::vector<std::string> urls;  // tried in order; empty for a file that an archive holds
  int64_t bytes = -1;             // -1: not known
  std::string sha256 = {};        // "": not known
};

struct Source {
  std::string name, what;
  std::vector<SourceFile> files = {};  // files to download
  // If `folder` is not empty, files[0] is an archive. Its folder `top` becomes `folder`, which then
  // holds `contents`.
  std::string folder = {}, top = {};
  std::vector<SourceFile> contents = {};

  bool is_archive() const { return !folder.empty(); }
  // The files that the data folder holds in the end.
  const std::vector<SourceFile>& results() const { return is_archive() ? contents : files; }
};

// All known datasets. The sums were published by the makers of the files or by libraries that
// download the same files, or were computed from files of known origin.
const std::vector<Source>& sources();
// The source whose name is `name` by same_name(). Errors: another name, with a list of all.
const Source& find_source(const std::string& name);

// Whether two names are equal without regard to upper case, '-' and '_', as "fashion-mnist" and
// "Fashion_MNIST" are.
bool same_name(const std::string& a, const std::string& b);

// The folders that are searched for datasets, in this order: $FRUGAL_DATA (if set),
// ~/.cache/frugal/datasets and, with `system`, the folder of the system's packages,
// /usr/share/datasets. `frugal data fetch` puts files into the first one. Files of packages may
// differ from the published ones, so `system` is false where sums are checked.
std::vector<std::string> data_folders(bool system = true);

enum class FileState {
  good,
  unchecked,
  missing,
  different
};  // unchecked: there, without a known sum

struct FileCheck {
  std::string path;
  FileState state = FileState::missing;
  std::string detail = {};  // if `different`: what was expected and what was found
};

// Checks size and sum of each of source.results() in `folder`.
std::vector<FileCheck> check_source(const Source& source, const std::string& folder);

struct FetchSourceOptions {
  std::string url;     // replaces the table's; must end in / if there are several files
  std::string sha256;  // replaces the table's; "none": no check
  int retries = 5, delay_ms = 500;
  std::function<void(const std::string& file, int64_t have, int64_t total)> progress = {};
  std::function<void(const std::string&)> say = {};  // gets a line about each thing that happened
};

// Downloads and unpacks the files of `source` that `folder` lacks. Good files stay. If a file's sum
// is not known, `say` gets the computed one. Archives are removed after they are unpacked. Errors:
// those of fetch and unpack; a file that is there but differs from the table; an archive without
// the files that it should hold; a sha256 for a source of several files.
void fetch_source(const Source& source, const std::string& folder,
                  const FetchSourceOptions& options = {});

}  // namespace frugal::data
