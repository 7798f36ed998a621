// Folders that vanish, and payloads, for the tests of offload.
#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "compress/offload/file_store.h"
#include "core/tensor.h"
#include "tests/compress/bytes.h"

namespace frugal::compress {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "frugal_off_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::string& path() const { return path_; }
  bool is_empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

// Bytes that follow from the seed, category `packed`.
inline Tensor payload(int64_t bytes, uint64_t seed) {
  CategoryScope scope(Category::packed);
  Tensor tensor = Tensor::empty({bytes}, DType::u8);
  auto* data = static_cast<uint8_t*>(tensor.raw());
  for (uint64_t i = 0; i < static_cast<uint64_t>(bytes); ++i)
    data[i] = static_cast<uint8_t>(seed * 131 + i * i + (i >> 8));
  return tensor;
}

// Waits for another thread, ten seconds at most.
inline bool soon(const std::function<bool()>& happened) {
  for (int i = 0; i < 10000; ++i) {
    if (happened()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Writes over the beginning of this process's unnamed files in `folder`.
inline int spoil_files(const std::string& folder) {
  int spoiled = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const std::string target = std::filesystem::read_symlink(entry.path(), error).string();
    if (error || !target.starts_with(folder)) continue;
    const int file = open(entry.path().c_str(), O_WRONLY | O_CLOEXEC);
    if (file < 0) continue;
    const char other[] = "not what was there";
    if (pwrite(file, other, sizeof other, 7) == sizeof other) ++spoiled;
    fsync(file);
    close(file);
  }
  return spoiled;
}

}  // namespace frugal::compress
