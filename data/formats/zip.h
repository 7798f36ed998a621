// Deflated files: gzip as a stream, and the entries of zip archives. Internal to data.
// Ref: RFC 1950 to 1952; PKWARE APPNOTE 6.3.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/formats/file_bytes.h"

namespace frugal::data {

// Delivers a file's bytes in order, inflated when it is gzipped (told by its first bytes, not by
// its name; several members are one stream). Holds two small buffers, whatever the file's size.
class ByteStream {
 public:
  // `op` names the reader in messages. Errors: unreadable file.
  ByteStream(const char* op, const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Up to `count` further bytes into out; fewer only at the end.
  // Errors: a failing read, corrupt or truncated gzip, bytes behind it that are no gzip.
  size_t read(void* out, size_t count);

 private:
  bool refill();  // false at the end of the file
  size_t inflate_some(uint8_t* out, size_t count);
  void end_member();
  const char* op_;
  std::string path_;
  FileHandle file_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is unread in buffer_
  int64_t consumed_ = 0;        // bytes of the file taken from the buffer
  bool gzip_ = false, started_ = false, ended_ = false;
  z_stream stream_{};
};

struct ZipEntry {
  std::string name;
  uint16_t method = 0;  // 0 stored, 8 deflated
  uint32_t crc = 0;
  int64_t packed = 0, size = 0;  // bytes, in the file and inflated
  int64_t header = 0;            // offset of the entry's own header
};

// An archive whose directory was checked; ZipReader reads its entries.
class ZipFile {
 public:
  // Errors: no zip file, a directory that is cut, lies outside the file or names an entry twice,
  // archives in parts, encrypted or otherwise packed entries, sizes that cannot be.
  static ZipFile open(const char* op, const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }
  const ZipEntry* find(const std::string& name) const;  // nullptr: none

 private:
  friend class ZipReader;
  void read_at(int64_t offset, void* out, size_t count, const char* what) const;
  const char* op_ = "zip";
  std::string path_;
  FileHandle file_;
  int64_t file_bytes_ = 0;
  std::vector<ZipEntry> entries_;
};

// Delivers an entry's bytes in order, in little memory. The archive must outlive it.
class ZipReader {
 public:
  // Errors: an entry that lies outside the file.
  ZipReader(const ZipFile& zip, const ZipEntry& entry);
  ~ZipReader();
  ZipReader(const ZipReader&) = delete;
  ZipReader& operator=(const ZipReader&) = delete;

  // Up to `count` further bytes into out; fewer only at the end of what the directory says.
  // Errors: corrupt data, data that end before.
  size_t read(void* out, size_t count);
  // Errors: bytes left, or more than the directory says; another checksum.
  void finish();

 private:
  size_t inflate_some(uint8_t* out, size_t count);
  const ZipFile& zip_;
  const ZipEntry& entry_;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;             // what is unread in buffer_
  int64_t at_ = 0, taken_ = 0, read_ = 0;  // offset in the file; bytes taken, and delivered
  uint32_t crc_;
  bool started_ = false, ended_ = false;
  z_stream stream_{};
};

}  // namespace frugal::data
