#include "data/formats/file_bytes.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace frugal::data {

namespace fs = std::filesystem;

bool is_file(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

int64_t file_size(const char* op, const std::string& path) {
  struct stat status;
  const bool exists = stat(path.c_str(), &status) == 0;
  FRUGAL_CHECK(exists, "[{}] expected a file at {}, got: {}", op, path, std::strerror(errno));
  FRUGAL_CHECK(S_ISREG(status.st_mode), "[{}] expected a regular file at {}, got another kind", op,
               path);
  return status.st_size;
}

FileHandle open_file(const char* op, const std::string& path) {
  file_size(op, path);  // fopen() accepts a folder; only reading it fails
  FileHandle file(std::fopen(path.c_str(), "rb"));
  FRUGAL_CHECK(file != nullptr, "[{}] cannot open {}: {}", op, path, std::strerror(errno));
  return file;
}

std::vector<uint8_t> read_file(const char* op, const std::string& path) {
  const FileHandle file = open_file(op, path);
  std::vector<uint8_t> bytes(static_cast<size_t>(file_size(op, path)));
  const size_t got = std::fread(bytes.data(), 1, bytes.size(), file.get());
  FRUGAL_CHECK(got == bytes.size(), "[{}] expected {} bytes in {}, got {}: {}", op, bytes.size(),
               path, got, std::ferror(file.get()) ? std::strerror(errno) : "the file ended");
  return bytes;
}

}  // namespace frugal::data
