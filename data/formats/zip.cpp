#include "data/formats/zip.h"

#include <archive.h>
#include <archive_entry.h>

#include <algorithm>
#include <unordered_set>

#include "core/error.h"
#include "core/words/quoted.h"
#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

// Deflate codes at most 258 bytes in 2 bits, so an archive cannot hold more than this times its
// size.
constexpr int64_t kMaxRatio = 1032;

// Why libarchive failed, in its own words.
std::string reason(archive* reader) {
  const char* text = archive_error_string(reader);
  std::string why = text == nullptr ? "no reason known" : text;
  while (why.ends_with('\n')) why.pop_back();
  return printable(why, 300);
}

[[noreturn]] void fail_archive(const char* op, const std::string& path, archive* reader) {
  throw Error(fmt::format("[{}] expected a zip archive in {}, got a broken one: {}", op, path,
                          reason(reader)));
}

ArchiveReader start(const char* op, const std::string& path) {
  ArchiveReader reader(archive_read_new());
  FRUGAL_CHECK(reader != nullptr, "[{}] cannot start libarchive", op);
  // This reader needs the directory at the end. libarchive's other reader would accept archives
  // that were cut.
  archive_read_support_format_zip_seekable(reader.get());
  if (archive_read_open_filename(reader.get(), path.c_str(), 1 << 16) != ARCHIVE_OK)
    fail_archive(op, path, reader.get());
  return reader;
}

// The next entry; nullptr at the end.
archive_entry* next(const char* op, const std::string& path, archive* reader) {
  const UnicodeNames unicode;
  archive_entry* entry = nullptr;
  const int status = archive_read_next_header(reader, &entry);
  if (status == ARCHIVE_EOF) return nullptr;
  // libarchive warns if the locale cannot write a name, which does no harm. All its other
  // warnings mean that the entry contradicts the archive's directory.
  const bool named_otherwise = status == ARCHIVE_WARN && archive_entry_pathname(entry) == nullptr;
  if (status != ARCHIVE_OK && !named_otherwise) fail_archive(op, path, reader);
  return entry;
}

std::string entry_name(archive_entry* entry) {
  const UnicodeNames unicode;
  const char* name = archive_entry_pathname(entry);
  if (name == nullptr) name = archive_entry_pathname_utf8(entry);
  return name == nullptr ? "" : name;
}

}  // namespace

void CloseArchive::operator()(archive* reader) const { archive_read_free(reader); }

UnicodeNames::UnicodeNames() {
  // Null on a system that lacks this locale; then the thread's own stays.
  static const locale_t unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  before_ = uselocale(unicode);
}
UnicodeNames::~UnicodeNames() { uselocale(before_); }

ZipFile ZipFile::open(const char* op, const std::string& path) {
  ZipFile zip;
  zip.op_ = op;
  zip.path_ = path;
  const int64_t bytes = file_size(op, path);
  const ArchiveReader reader = start(op, path);
  std::unordered_set<std::string> names;
  while (archive_entry* entry = next(op, path, reader.get())) {
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    const ZipEntry& file = zip.entries_.emplace_back(ZipEntry{
        entry_name(entry), archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1});
    FRUGAL_CHECK(!archive_entry_is_encrypted(entry),
                 "[{}] expected entries without a password in {}, got the encrypted {}", op, path,
                 in_quotes(file.name));
    FRUGAL_CHECK(file.size >= 0 && file.size / kMaxRatio <= bytes,
                 "[{}] impossible size of {} in {}: {} bytes in an archive of {}", op,
                 in_quotes(file.name), path, file.size, bytes);
    FRUGAL_CHECK(names.insert(file.name).second, "[{}] expected each name once in {}, got {} twice",
                 op, path, in_quotes(file.name));
  }
  return zip;
}

const ZipEntry* ZipFile::find(const std::string& name) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const ZipEntry& entry) { return entry.name == name; });
  return at == entries_.end() ? nullptr : &*at;
}

ZipReader::ZipReader(const ZipFile& zip, const ZipEntry& entry)
    : zip_(zip), entry_(entry), reader_(start(zip.op(), zip.path())) {
  archive_entry* found = nullptr;
  do {
    found = next(zip.op(), zip.path(), reader_.get());
    FRUGAL_CHECK(found != nullptr, "[{}] expected {} in {}, got none: did the file change?",
                 zip.op(), in_quotes(entry.name), zip.path());
  } while (entry_name(found) != entry.name);
}

size_t ZipReader::take(void* out, size_t count) {
  const la_ssize_t got = archive_read_data(reader_.get(), out, count);
  if (got >= 0) return static_cast<size_t>(got);
  throw Error(fmt::format("[{}] corrupt data of {} in {}: {}", zip_.op(), in_quotes(entry_.name),
                          zip_.path(), reason(reader_.get())));
}

size_t ZipReader::read(void* out, size_t count) {
  count = std::min(count, static_cast<size_t>(entry_.size - read_));
  const size_t got = count == 0 ? 0 : take(out, count);
  read_ += static_cast<int64_t>(got);
  FRUGAL_CHECK(got == count, "[{}] corrupt data of {} in {}: expected {} bytes, got {}", zip_.op(),
               in_quotes(entry_.name), zip_.path(), entry_.size, read_);
  return got;
}

void ZipReader::finish() {
  uint8_t beyond = 0;  // reading on makes libarchive compare the checksum
  const bool whole = take(&beyond, 1) == 0 && read_ == entry_.size;
  FRUGAL_CHECK(whole, "[{}] corrupt data of {} in {}: expected {} bytes, got others", zip_.op(),
               in_quotes(entry_.name), zip_.path(), entry_.size);
}

}  // namespace frugal::data
