// Files that appear whole or not at all: written to a file beside their place, fsynced, renamed,
// and the directory fsynced.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace frugal::data {

// Until commit() succeeds, the file at `path` is what it was. The new content lies in a file
// without a name (O_TMPFILE), so a killed process leaves nothing. Where the file system has no such
// files, the name is random and the file new (O_EXCL): a link that somebody put there is never
// followed. A destroyed writer removes its temporary. Writers of one path do not see each other's
// content; the last one to commit stands.
class AtomicFile {
 public:
  // `unnamed` false: as on a file system without unnamed files.
  // Errors: unwritable directory, a path that is no regular file.
  explicit AtomicFile(std::string path, bool unnamed = true);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);  // Errors: with path and reason, such as a full disk
  void commit();                               // the same

 private:
  [[noreturn]] void fail(const char* doing) const;
  void open_named();
  std::string path_, folder_, temporary_;  // temporary_: empty while the file has no name
  int file_ = -1;
};

void atomic_write(const std::string& path, std::string_view content);

// Whether a file of this name is what a killed process may leave of AtomicFile(`target`), both
// without folders.
bool is_temporary_of(std::string_view name, std::string_view target);

// Makes the names in a folder last, such as those of new files. Errors: with the folder and the
// reason; a file system that cannot do it is no error.
void sync_folder(const std::string& folder);

}  // namespace frugal::data
