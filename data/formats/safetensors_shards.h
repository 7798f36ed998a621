// Weights in one safetensors file, or in several with an index: NAME.safetensors.index.json, as
// Hugging Face's libraries write it.
#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/formats/safetensors.h"

namespace frugal::data {

// The open files of one set of weights, read as one. open() checks all headers.
class SafetensorsShards {
 public:
  // `path`: a file; an index; a folder with one index, or with one file and no index. The file
  // counts where a folder has NAME.safetensors beside its index.
  // Errors (each with the path): those of SafetensorsFile; an index that is not JSON, without a
  // weight_map, that names a file outside of its folder, a file that is missing, or a tensor that
  // its file lacks; a folder with none of these files, or with several.
  static SafetensorsShards open(const std::string& path);

  const std::string& path() const { return path_; }
  std::vector<std::string> files() const;  // their paths
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return file_of_.contains(name); }
  const SafetensorsInfo& info(const std::string& name) const;    // REQUIRES: one of names()
  Tensor read(const std::string& name) const;                    // REQUIRES: one of names(). See
                                                                 // SafetensorsFile::read
  Tensor read_signed_bytes(const std::string& name) const;       // REQUIRES: an I8
  std::vector<std::pair<std::string, Tensor>> read_all() const;  // see SafetensorsFile::read

 private:
  void read_index(const std::string& path);
  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;
  std::map<std::string, size_t> file_of_;
};

}  // namespace frugal::data
