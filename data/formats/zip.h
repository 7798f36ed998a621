// Zip archives, read through libarchive. Internal to data.
#pragma once
#include <locale.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct archive;

namespace frugal::data {

struct CloseArchive {
  void operator()(archive* reader) const;
};
using ArchiveReader = std::unique_ptr<archive, CloseArchive>;

// While one lives, this thread's locale writes all of Unicode. libarchive gives an entry's name in
// that locale. In the locale "C", which every program has at its start, it gives no name at all
// where a zip archive's name is UTF-8 and not ASCII (findings/libarchive_locale.sh).
class UnicodeNames {
 public:
  UnicodeNames();
  ~UnicodeNames();
  UnicodeNames(const UnicodeNames&) = delete;
  UnicodeNames& operator=(const UnicodeNames&) = delete;

 private:
  locale_t before_;
};

struct ZipEntry {
  std::string name;
  int64_t size = 0;  // bytes, unpacked
};

// The list of an archive's files; ZipReader reads one.
class ZipFile {
 public:
  // `op` names the reader in messages. Errors: no zip archive or a broken one, an encrypted entry,
  // a name that occurs twice, a size that no file of this length can unpack to.
  static ZipFile open(const char* op, const std::string& path);

  const char* op() const { return op_; }
  const std::string& path() const { return path_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(const std::string& name) const;  // nullptr: none

 private:
  const char* op_ = "zip";
  std::string path_;
  std::vector<ZipEntry> entries_;
};

// Delivers the bytes of one entry in order, in little memory. Archive and entry must outlive it.
class ZipReader {
 public:
  // Errors: an archive that changed since it was opened.
  ZipReader(const ZipFile& zip, const ZipEntry& entry);

  // Up to `count` further bytes into out; fewer only at the end of the entry's size.
  // Errors: corrupt data, data that end before.
  size_t read(void* out, size_t count);
  // Errors: bytes that were not read or that lie beyond the entry's size; another checksum.
  void finish();

 private:
  size_t take(void* out, size_t count);
  const ZipFile& zip_;
  const ZipEntry& entry_;
  ArchiveReader reader_;
  int64_t read_ = 0;
};

}  // namespace frugal::data
