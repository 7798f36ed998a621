// Opens and reads files. Internal to data.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

namespace frugal::data {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FileHandle = std::unique_ptr<std::FILE, CloseFile>;

// Errors: a file that cannot be opened, with path and reason; a path that is not a regular file.
FileHandle open_file(const char* op, const std::string& path);
int64_t file_size(const char* op, const std::string& path);
bool is_file(const std::string& path);
bool is_folder(const std::string& path);

// The whole file. Errors: those above; a failing read.
std::vector<uint8_t> read_file(const char* op, const std::string& path);

}  // namespace frugal::data
