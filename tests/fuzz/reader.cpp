#include "tests/fuzz/reader.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace frugal_test {

namespace fs = std::filesystem;

FuzzFolder::FuzzFolder() {
  const fs::path memory = "/dev/shm";
  const fs::path base = fs::is_directory(memory) ? memory : fs::temp_directory_path();
  std::string pattern = (base / "frugal-fuzz-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make " + pattern);
  path_ = pattern;
  look_into("");
}

FuzzFolder::~FuzzFolder() {
  for (const auto& each : folders_) closedir(each.second);
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

std::string FuzzFolder::write(const std::string& name, std::string_view content) const {
  const std::string path = path_ + "/" + name;
  if (known_.insert(name).second) {
    fs::create_directories(fs::path(path).parent_path());
    for (fs::path above = fs::path(name).parent_path(); !above.empty(); above = above.parent_path())
      if (known_.insert(above).second) look_into(above.string() + "/");
  }
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) throw std::runtime_error("cannot open " + path);
  const ssize_t written = ::write(file, content.data(), content.size());
  close(file);
  if (written != static_cast<ssize_t>(content.size()))
    throw std::runtime_error("cannot write " + path);
  return path;
}

std::string FuzzFolder::keep(const std::string& name, std::string_view content) const {
  if (const auto found = kept_.find(name); found != kept_.end() && found->second == content)
    return path_ + "/" + name;
  kept_[name] = content;
  return write(name, content);
}

void FuzzFolder::look_into(const std::string& folder) const {
  DIR* const names = opendir((path_ + "/" + folder).c_str());
  if (names == nullptr) throw std::runtime_error("cannot list " + path_ + "/" + folder);
  folders_.emplace_back(folder, names);
}

void FuzzFolder::clear() const {
  std::vector<std::string> left;
  for (const auto& [folder, names] : folders_) {
    rewinddir(names);
    while (const dirent* const entry = readdir(names)) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (std::string inside = folder + entry->d_name; !known_.contains(inside))
        left.push_back(std::move(inside));
    }
  }
  for (const std::string& name : left) fs::remove_all(path_ + "/" + name);
}

bool FuzzFolder::is_kept() const {
  return std::all_of(kept_.begin(), kept_.end(), [&](const auto& kept) {
    std::ifstream file(path_ + "/" + kept.first, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {}) == kept.second;
  });
}

std::string mutated(std::string bytes, const Reader& reader,
                    const std::function<uint64_t(uint64_t)>& draw) {
  // Sizes that readers get wrong: the ends of types, and what overflows when it is multiplied.
  static const std::string kNumbers[] = {"0",          "-1",         "1",
                                         "2147483648", "4294967295", "9223372036854775807",
                                         "1e308",      "0.5",        "18446744073709551616",
                                         "-0",         "nan",        "4611686018427387904"};
  static const unsigned char kBytes[] = {0, 1, 0x7f, 0x80, 0xff, '"', '{', '[', ',', '\n', ' '};
  const auto place = [&](size_t beyond) { return static_cast<size_t>(draw(beyond)); };
  const uint64_t changes = 1 + draw(4);
  for (uint64_t change = 0; change < changes; ++change) {
    const size_t at = place(bytes.size() + 1);
    const size_t count = std::min(bytes.size() - at, 1 + place(16));
    switch (draw(9)) {
      case 0:
        if (at < bytes.size()) bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(8)));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<char>(kBytes[draw(std::size(kBytes))]);
        break;
      case 2:
        bytes.erase(at, count);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, count));
        break;
      case 4:
        if (!reader.words.empty()) bytes.insert(at, reader.words[place(reader.words.size())]);
        break;
      case 5: {  // the next number becomes another one
        const size_t begin = bytes.find_first_of("0123456789", at);
        if (begin == std::string::npos) break;
        const size_t end = bytes.find_first_not_of("0123456789", begin);
        bytes.replace(begin, end == std::string::npos ? end : end - begin,
                      kNumbers[draw(std::size(kNumbers))]);
        break;
      }
      case 6:
        bytes.resize(at);
        break;
      case 7: {  // four bytes become a number that a header may hold
        static constexpr uint32_t kWords[] = {0, 1, 0x7fffffff, 0x80000000u, 0xffffffffu, 0x10000};
        const uint32_t value = kWords[draw(std::size(kWords))];
        for (size_t i = 0; i < 4 && at + i < bytes.size(); ++i)
          bytes[at + i] = static_cast<char>(value >> (8 * i) & 255u);
        break;
      }
      default: {
        const std::string& other = reader.seeds[place(reader.seeds.size())];
        const size_t from = place(other.size() + 1);
        bytes = bytes.substr(0, at) + other.substr(from);
      }
    }
  }
  constexpr size_t kLongest = 1 << 16;
  if (bytes.size() > kLongest) bytes.resize(kLongest);
  return bytes;
}

}  // namespace frugal_test
