// Readers: what turns bytes that somebody else wrote into objects. Each row gives good files, and
// the way a program reads them. The test mutates the good files, and libFuzzer does so for hours
// (tools/campaign.sh).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace frugal_test {

// A folder in memory where there is one, for the files of one input at a time.
class FuzzFolder {
 public:
  FuzzFolder();
  ~FuzzFolder();
  FuzzFolder(const FuzzFolder&) = delete;
  FuzzFolder& operator=(const FuzzFolder&) = delete;
  const std::string& path() const { return path_; }
  // Writes a file, whose folders it makes, and returns its path.
  std::string write(const std::string& name, std::string_view content) const;
  void clear() const;

 private:
  std::string path_;
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
