#include "data/formats/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>

#include "core/error.h"
#include "core/words/quoted.h"

namespace frugal::data {
namespace {

constexpr std::string_view kEnding = ".tmp", kDigits = "0123456789abcdef";
constexpr size_t kRandomDigits = 16;
constexpr int kTries = 16;  // the chance that a name is taken is 2^-64

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

// NAME.16 hexadecimal digits.tmp
std::string random_name(const std::string& path) {
  std::random_device random;  // slow on some processors, so no bit of it is wasted
  uint64_t bits = uint64_t{random()} << 32 | random();
  std::string name = path + ".";
  for (size_t i = 0; i < kRandomDigits; ++i, bits >>= 4) name += kDigits[bits & 15];
  return name.append(kEnding);
}

// The path through which an unnamed file gets a name.
std::string descriptor_path(int file) { return "/proc/self/fd/" + std::to_string(file); }

}  // namespace

AtomicFile::AtomicFile(std::string path, bool unnamed)
    : path_(std::move(path)), folder_(folder_of(path_)) {
  struct stat target;
  FRUGAL_CHECK(!path_.empty(), "[write] expected a file name, got an empty one");
  refuse_links_in_run(path_);
  FRUGAL_CHECK(stat(path_.c_str(), &target) != 0 || S_ISREG(target.st_mode),
               "[write] expected a regular file at {}, got a directory or a device", path_);
  if (unnamed) file_ = open(folder_.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666);
  if (file_ >= 0 && access(descriptor_path(file_).c_str(), F_OK) != 0) {  // no /proc
    close(file_);
    file_ = -1;
  }
  if (file_ < 0) open_named();
}

AtomicFile::~AtomicFile() {
  if (file_ < 0) return;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  close(file_);
}

void AtomicFile::fail(const char* doing) const {
  const int reason = errno;
  throw Error(fmt::format("[write] cannot {} a temporary file for {}: {}", doing, path_,
                          std::strerror(reason)));
}

void AtomicFile::open_named() {
  for (int i = 0; i < kTries && file_ < 0; ++i) {
    const std::string name = random_name(path_);
    file_ = open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (file_ >= 0)
      temporary_ = name;
    else if (errno != EEXIST)
      break;
  }
  if (file_ < 0) fail("open");
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t wrote = ::write(file_, from, bytes);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("write");
    from += wrote;
    bytes -= static_cast<size_t>(wrote);
  }
}

// link() cannot replace a file, but rename() can. So an unnamed file gets a random name first.
void AtomicFile::commit(bool lasting) {
  if (lasting && fsync(file_) != 0) fail("fsync");
  for (int i = 0; i < kTries && temporary_.empty(); ++i) {
    const std::string name = random_name(path_);
    if (linkat(AT_FDCWD, descriptor_path(file_).c_str(), AT_FDCWD, name.c_str(),
               AT_SYMLINK_FOLLOW) == 0)
      temporary_ = name;
    else if (errno != EEXIST)
      break;
  }
  if (temporary_.empty()) fail("name");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) fail("rename");
  close(file_);
  file_ = -1;
  if (lasting) sync_path(folder_);
}

void atomic_write(const std::string& path, std::string_view content, bool lasting) {
  AtomicFile file(path);
  file.write(content.data(), content.size());
  file.commit(lasting);
}

void refuse_links_in_run(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  fs::path folder = fs::absolute(path, none).lexically_normal().parent_path();
  std::string link;  // the outermost one between the file and `folder`
  for (; folder.has_relative_path(); folder = folder.parent_path()) {
    if (!link.empty() && fs::exists(folder / "config.json", none) &&
        fs::is_directory(folder / "checkpoint", none))
      throw Error(fmt::format(
          "[write] cannot write {}: {} is a link, and nothing is written through links inside the "
          "folder of a run; put a folder in its place, or write to another place",
          in_quotes(path), in_quotes(link)));
    if (fs::is_symlink(folder, none)) link = folder.string();
  }
}

bool is_temporary_of(std::string_view name, std::string_view target) {
  return name.size() == target.size() + 1 + kRandomDigits + kEnding.size() &&
         name.starts_with(target) && name[target.size()] == '.' && name.ends_with(kEnding) &&
         name.substr(target.size() + 1, kRandomDigits).find_first_not_of(kDigits) ==
             std::string_view::npos;
}

void sync_path(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  // Some file systems cannot sync a folder and return EINVAL. The file itself is safe.
  const bool synced = file >= 0 && (fsync(file) == 0 || errno == EINVAL);
  const int reason = errno;
  if (file >= 0) close(file);
  if (!synced) throw Error(fmt::format("[write] cannot sync {}: {}", path, std::strerror(reason)));
}

NewFolder::NewFolder(std::string path)
    : path_(std::move(path)), keeps_(!std::filesystem::create_directories(path_)) {}

NewFolder::~NewFolder() {
  std::error_code ignored;
  if (!keeps_) std::filesystem::remove_all(path_, ignored);
}

}  // namespace frugal::data
