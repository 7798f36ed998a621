// Where the usual datasets come from, what they are made of, and whether a folder has them.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace frugal::data {

struct SourceFile {
  std::string path;               // below the data folder
  std::vector<std::string> urls;  // tried in order; none for what comes out of an archive
  int64_t bytes = -1;             // -1: not known
  std::string sha256 = {};        // "": not known for certain
};

struct Source {
  std::string name, what;
  std::vector<SourceFile> files = {};  // to download
  // Where files[0] is an archive: its folder `top` becomes `folder`, which then holds `contents`.
  std::string folder = {}, top = {};
  std::vector<SourceFile> contents = {};

  bool is_archive() const { return !folder.empty(); }
  // What lies in the data folder in the end.
  const std::vector<SourceFile>& results() const { return is_archive() ? contents : files; }
};

// Sums are those published by their makers or by the libraries that download the same files, or
// were taken of files whose origin is known; a file without one has none here.
const std::vector<Source>& sources();
// By `same_name`. Errors: unknown, listing those known.
const Source& find_source(const std::string& name);

// Equal but for upper case, '-' and '_': "fashion-mnist" and "fashion_mnist".
bool same_name(const std::string& a, const std::string& b);

// Where data sets are looked for, in this order: $FRUGAL_DATA, ~/.cache/frugal/datasets and the
// folder of the system's packages, /usr/share/datasets. What is not set is left out. The first one
// is where `frugal data fetch` puts files. Without `system`: only folders of downloads, whose files
// are the published ones.
std::vector<std::string> data_folders(bool system = true);

enum class FileState { good, unchecked, missing, different };  // unchecked: there, no sum is known

struct FileCheck {
  std::string path;
  FileState state = FileState::missing;
  std::string detail = {};  // of `different`: what was expected and found
};

// Each result of `source` below `folder`, its size first, then its sum.
std::vector<FileCheck> check_source(const Source& source, const std::string& folder);

struct FetchSourceOptions {
  std::string url;     // instead of the table's; ends in / where there are several files
  std::string sha256;  // instead of the table's; "none": not checked
  int retries = 5, delay_ms = 500;
  std::function<void(const std::string& file, int64_t have, int64_t total)> progress = {};
  std::function<void(const std::string&)> say = {};  // what happened, in lines
};

// Downloads and unpacks what `folder` lacks of `source`; files that are there and good stay. Sums
// that are not known are told. Archives go once they are unpacked.
// Errors: those of fetch and unpack; files that are there and
// different; an archive that lacks what it should hold; a sha256 for several files.
void fetch_source(const Source& source, const std::string& folder,
                  const FetchSourceOptions& options = {});

}  // namespace frugal::data
