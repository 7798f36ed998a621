#include "data/formats/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"
#include "data/formats/zip.h"

namespace frugal::data {

namespace {

namespace fs = std::filesystem;

// A folder or file that is removed in the end, unless it was renamed.
struct Temporary {
  fs::path path;
  ~Temporary() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

class Unpacker {
 public:
  Unpacker(const std::string& path, const UnpackLimits& limits)
      : path_(path), limits_(limits), reader_(archive_read_new()), buffer_(size_t{1} << 18) {
    allowed_ = file_size("unpack", path);
    const bool overflow = __builtin_mul_overflow(allowed_, limits.ratio, &allowed_) ||
                          __builtin_add_overflow(allowed_, int64_t{16} << 20, &allowed_);
    allowed_ = overflow ? limits.bytes : std::min(allowed_, limits.bytes);
    archive* reader = reader_.get();
    FRUGAL_CHECK(reader != nullptr, "[unpack] cannot start libarchive");
    archive_read_support_filter_gzip(reader);
    archive_read_support_format_tar(reader);
    archive_read_support_format_zip(reader);
    check(archive_read_open_filename(reader, path.c_str(), 1 << 16) == ARCHIVE_OK);
  }

  // The next entry, nullptr at the end.
  archive_entry* next() {
    const UnicodeNames unicode;
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(reader_.get(), &entry);
    if (status == ARCHIVE_EOF) return nullptr;
    // A warning says that the locale cannot write a name. That does no harm.
    check(status == ARCHIVE_OK || status == ARCHIVE_WARN);
    FRUGAL_CHECK(++entries_ <= limits_.entries,
                 "[unpack] expected at most {} entries in {}, got more", limits_.entries, path_);
    return entry;
  }

  // Writes the current entry's bytes to a new file.
  void write(const fs::path& target) {
    const int file =
        open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    FRUGAL_CHECK(file >= 0, "[unpack] cannot write {} of {}: {}",
                 in_quotes(target.filename().string()), path_,
                 errno == EEXIST ? "an entry of this name came before" : std::strerror(errno));
    struct Close {
      int file;
      ~Close() { close(file); }
    } const closer{file};
    while (true) {
      const la_ssize_t got = archive_read_data(reader_.get(), buffer_.data(), buffer_.size());
      check(got >= 0);
      if (got == 0) return;
      written_ += got;
      FRUGAL_CHECK(written_ <= allowed_, "[unpack] expected at most {} bytes from {}, got more",
                   allowed_, path_);
      for (la_ssize_t done = 0; done < got;) {
        const ssize_t wrote = ::write(file, buffer_.data() + done, static_cast<size_t>(got - done));
        FRUGAL_CHECK(wrote > 0 || errno == EINTR, "[unpack] cannot write {}: {}",
                     printable(target.string(), 1000), std::strerror(errno));
        done += std::max<ssize_t>(wrote, 0);
      }
    }
  }

  void check(bool good) const {
    if (good) return;
    const char* why = archive_error_string(reader_.get());
    FRUGAL_CHECK(false, "[unpack] cannot read {}: {}", path_,
                 why == nullptr ? "broken" : printable(why, 300));
  }

 private:
  std::string path_;
  UnpackLimits limits_;
  ArchiveReader reader_;
  std::vector<char> buffer_;
  int64_t allowed_ = 0, entries_ = 0, written_ = 0;
};

// The entry's name as a path below the target. Errors: a name that leads elsewhere.
fs::path safe_name(archive_entry* entry, const std::string& archive) {
  const UnicodeNames unicode;
  const char* raw = archive_entry_pathname(entry);
  if (raw == nullptr) raw = archive_entry_pathname_utf8(entry);
  FRUGAL_CHECK(raw != nullptr && *raw != '\0',
               "[unpack] expected names in {}, got an entry without", archive);
  const std::string_view name(raw);
  fs::path path;
  bool safe = name.front() != '/' && std::none_of(name.begin(), name.end(), [](char c) {
                return c == '\\' || (c >= 0 && c < ' ') || c == 0x7F;
              });
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    safe = safe && part != ".." && part.size() <= 255;
    if (!part.empty() && part != ".") path /= part;
    begin = end + 1;
  }
  FRUGAL_CHECK(safe, "[unpack] expected names below the archive's folder in {}, got {}", archive,
               in_quotes(name));
  return path;
}

void require_plain(archive_entry* entry, const fs::path& name, const std::string& archive) {
  const auto type = archive_entry_filetype(entry);
  const bool link = archive_entry_hardlink(entry) != nullptr ||
                    archive_entry_symlink(entry) != nullptr || type == AE_IFLNK;
  FRUGAL_CHECK(!link && (type == AE_IFREG || type == AE_IFDIR),
               "[unpack] expected files and folders in {}, got {} {}", archive,
               link ? "the link" : "the device or pipe", in_quotes(name.string()));
}

void rename_to(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  FRUGAL_CHECK(!error, "[unpack] cannot rename {} to {}: {}", from.string(), to.string(),
               error.message());
}

// A new folder beside `target`, on the same file system, so that a rename can move its content.
Temporary folder_beside(const fs::path& target) {
  const fs::path full = fs::absolute(target);
  std::error_code error;
  fs::create_directories(full.parent_path(), error);
  std::string pattern = full.string() + ".unpack-XXXXXX";
  FRUGAL_CHECK(!error && mkdtemp(pattern.data()) != nullptr, "[unpack] cannot make {}: {}", pattern,
               error ? error.message() : std::strerror(errno));
  return {pattern};
}

}  // namespace

void unpack(const std::string& archive, const std::string& folder, const std::string& top,
            const UnpackLimits& limits, const std::function<void(const std::string&)>& accept) {
  std::error_code error;
  FRUGAL_CHECK(!fs::exists(folder, error) || fs::is_empty(folder, error),
               "[unpack] expected no folder {}, got one that holds something; move it away first",
               folder);
  Unpacker unpacker(archive, limits);
  // Without a slash at the end, so that the temporary folder is beside the target, not in it.
  const fs::path target =
      fs::path(folder).has_filename() ? fs::path(folder) : fs::path(folder).parent_path();
  const Temporary temporary = folder_beside(target);
  bool any = false;
  while (archive_entry* entry = unpacker.next()) {
    const fs::path name = safe_name(entry, archive);
    if (name.empty()) continue;  // "./"
    require_plain(entry, name, archive);
    FRUGAL_CHECK(top.empty() || *name.begin() == top, "[unpack] expected all of {} in {}/, got {}",
                 archive, top, in_quotes(name.string()));
    const bool is_folder = archive_entry_filetype(entry) == AE_IFDIR;
    const fs::path path = temporary.path / name;
    fs::create_directories(is_folder ? path : path.parent_path(), error);
    FRUGAL_CHECK(!error, "[unpack] cannot make the folder of {} in {}: {}",
                 in_quotes(name.string()), archive, error.message());
    if (is_folder) continue;
    unpacker.write(path);
    any = true;
  }
  FRUGAL_CHECK(any, "[unpack] expected files in {}, got none", archive);
  const fs::path made = top.empty() ? temporary.path : temporary.path / top;
  FRUGAL_CHECK(fs::is_directory(made), "[unpack] expected a folder {} in {}, got a file", top,
               archive);
  if (accept) accept(made.string());
  fs::permissions(made, fs::perms(0755), error);  // mkdtemp() lets only the owner read
  rename_to(made, target);
}

}  // namespace frugal::data
