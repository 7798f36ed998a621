// ByteStream: the bytes of a file that may be gzipped. Internal to data. Ref: RFC 1950 to 1952.
#pragma once
#include <zlib.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/formats/file_bytes.h"

namespace frugal::data {

// Delivers a file's bytes in order. A gzipped file is unpacked: its first bytes tell, not its name,
// and several members are one stream. Memory: two small buffers, whatever the file's size.
class ByteStream {
 public:
  // `op` names the reader in messages. Errors: the file cannot be read.
  ByteStream(const char* op, const std::string& path);
  ~ByteStream();
  ByteStream(const ByteStream&) = delete;
  ByteStream& operator=(const ByteStream&) = delete;

  // Up to `count` further bytes into out; fewer only at the end.
  // Errors: a failing read, corrupt or truncated gzip, bytes behind it that are no gzip.
  size_t read(void* out, size_t count);
  // The most bytes that a file of this size can deliver.
  int64_t limit() const;

 private:
  bool refill();  // false at the end of the file
  size_t inflate_some(uint8_t* out, size_t count);
  void end_member();
  const char* op_;
  std::string path_;
  FileHandle file_;
  int64_t file_bytes_ = 0;
  std::vector<uint8_t> buffer_;
  size_t begin_ = 0, end_ = 0;  // what is unread in buffer_
  int64_t consumed_ = 0;        // bytes of the file taken from the buffer
  bool gzip_ = false, started_ = false, ended_ = false;
  z_stream stream_{};
};

}  // namespace frugal::data
