// AtomicFile: a file that appears whole or not at all. The content goes into a temporary file in
// the same folder, which is synced and renamed; then the folder is synced.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace frugal::data {

// The file at `path` does not change before commit() succeeds. The new content is in a file without
// a name (O_TMPFILE), so a killed process leaves nothing behind. If the file system has no such
// files, the temporary file has a random name and must not exist before (O_EXCL), so a link that
// somebody put there is never followed. The destructor removes the temporary file. If several
// writers have the same path, the last one to commit wins and none sees another one's content.
class AtomicFile {
 public:
  // `unnamed` false behaves as on a file system without unnamed files.
  // Errors: a folder that cannot be written; a path that is not a regular file.
  explicit AtomicFile(std::string path, bool unnamed = true);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Errors, both: a failing write, such as on a full disk, with path and reason. `lasting` false
  // syncs nothing: a killed process leaves the old or the new content, and a power cut may lose
  // both.
  void write(const void* data, size_t bytes);
  void commit(bool lasting = true);

 private:
  [[noreturn]] void fail(const char* doing) const;
  void open_named();
  std::string path_, folder_, temporary_;  // temporary_: empty while the file has no name
  int file_ = -1;
};

void atomic_write(const std::string& path, std::string_view content, bool lasting = true);

// A folder for files that belong together. Unless keep() is called, the destructor removes it with
// all that is in it, if the constructor has made it.
class NewFolder {
 public:
  explicit NewFolder(std::string path);  // Errors: a folder that cannot be made
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  void keep() { keeps_ = true; }

 private:
  std::string path_;
  bool keeps_;
};

// Nothing is written through links inside the folder of a run, which somebody else may have made.
// Errors: `path` lies in a folder that holds config.json and checkpoint/, and a folder on the way
// from there to the file is a symbolic link. The folder of the run may be one itself.
// AtomicFile checks its path. A link in the place of the file is replaced, and not followed.
void refuse_links_in_run(const std::string& path);

// Whether `name` is a temporary file of AtomicFile(`target`) that a killed process left. Both are
// names without folders.
bool is_temporary_of(std::string_view name, std::string_view target);

// Writes a file, or a folder's list of names, to the disk, so that it stays after a power cut.
// Errors: a failure, with path and reason. A file system that cannot sync folders is no error.
void sync_path(const std::string& path);

}  // namespace frugal::data
