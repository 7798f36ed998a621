// Readers: what turns bytes that somebody else wrote into objects. Each row gives good files, and
// the way a program reads them. The test mutates the good files, and libFuzzer does so for hours
// (tools/campaign.sh).
#pragma once
#include <dirent.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace frugal_test {

// A folder in memory where there is one, for the files of one input at a time. Millions of inputs
// follow each other, so a file is overwritten in place, and what stays the same is written once.
class FuzzFolder {
 public:
  FuzzFolder();
  ~FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;
  const std::string& path() const { return path_; }
  // Writes a file, whose folders it makes, and returns its path.
  std::string write(const std::string& name, std::string_view content) const;
  // Writes a good file that stands beside what is read, if it was not written yet.
  std::string keep(const std::string& name, std::string_view content) const;
  // Removes what neither write() nor keep() wrote: what a reader left.
  void clear() const;
  // Does each file of keep() still hold what was written? No reader changes what it reads.
  bool is_kept() const;

 private:
  void look_into(const std::string& folder) const;
  std::string path_;
  mutable std::set<std::string> known_;              // what write() made, by its name in the folder
  mutable std::map<std::string, std::string> kept_;  // what keep() wrote to files
  mutable std::vector<std::pair<std::string, DIR*>> folders_;  // "" and "ImageSets/", to be listed
};

// What good files of a folder give, where another file is the input. It is read once.
template <class T>
class Once {
 public:
  explicit Once(std::function<T(const std::string& folder)> read) : read_(std::move(read)) {}
  const T& of(const std::string& folder) const {
    const auto found = made_->find(folder);
    return found != made_->end() ? found->second
                                 : made_->emplace(folder, read_(folder)).first->second;
  }

 private:
  std::function<T(const std::string&)> read_;
  std::shared_ptr<std::map<std::string, T>> made_ = std::make_shared<std::map<std::string, T>>();
};

struct Reader {
  std::string name;
  // Inputs that read() takes without an error.
  std::vector<std::string> seeds;
  // What stands in such inputs: names, signs, keywords.
  std::vector<std::string> words;
  // Reads `bytes` as a program would. Errors: frugal::Error alone.
  std::function<void(const FuzzFolder& folder, const std::string& bytes)> read;
};

// The readers of `data`, and those of `train` and `apps`.
std::vector<Reader> data_readers();
std::vector<Reader> app_readers();

// Changes `bytes` in a few places, as `draw` says: bits, bytes, numbers, words, parts that go, come
// twice or come from another seed.
std::string mutated(std::string bytes, const Reader& reader,
                    const std::function<uint64_t(uint64_t)>& draw);

}  // namespace frugal_test
