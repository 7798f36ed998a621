#include "data/formats/byte_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace frugal::data {
namespace {

constexpr size_t kChunk = size_t{1} << 18;

// A code of deflate stands for at most 258 bytes and takes at least 2 bits.
constexpr int64_t kMostInflated = 1032;

}  // namespace

ByteStream::ByteStream(const char* op, const std::string& path)
    : op_(op),
      path_(path),
      file_(open_file(op, path)),
      file_bytes_(file_size(op, path)),
      buffer_(std::min(kChunk, static_cast<size_t>(file_bytes_) + 1)) {
  refill();
  gzip_ = end_ >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b;
  if (!gzip_) return;
  FRUGAL_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "[{}] cannot start zlib for {}", op, path);
  started_ = true;
}

ByteStream::~ByteStream() {
  if (started_) inflateEnd(&stream_);
}

int64_t ByteStream::limit() const { return gzip_ ? file_bytes_ * kMostInflated : file_bytes_; }

bool ByteStream::refill() {
  if (begin_ < end_) return true;
  begin_ = 0;
  end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  FRUGAL_CHECK(end_ > 0 || !std::ferror(file_.get()), "[{}] cannot read {}: {}", op_, path_,
               std::strerror(errno));
  return end_ > 0;
}

size_t ByteStream::read(void* out, size_t count) {
  auto* bytes = static_cast<uint8_t*>(out);
  if (gzip_) return inflate_some(bytes, count);
  size_t got = 0;
  while (got < count && refill()) {
    const size_t part = std::min(count - got, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, part, bytes + got);
    begin_ += part;
    got += part;
  }
  return got;
}

size_t ByteStream::inflate_some(uint8_t* out, size_t count) {
  size_t got = 0;
  while (got < count && !ended_) {
    const bool more = refill();
    const size_t room = std::min(count - got, kChunk), in = end_ - begin_;
    stream_.next_in = buffer_.data() + begin_;
    stream_.avail_in = static_cast<uInt>(in);
    stream_.next_out = out + got;
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    begin_ += in - stream_.avail_in;
    consumed_ += static_cast<int64_t>(in - stream_.avail_in);
    got += room - stream_.avail_out;
    if (status == Z_STREAM_END) {
      end_member();
      continue;
    }
    FRUGAL_CHECK(status == Z_OK || (status == Z_BUF_ERROR && !more),
                 "[{}] corrupt gzip in {} at compressed offset {}: {}", op_, path_, consumed_,
                 stream_.msg != nullptr ? stream_.msg : "invalid data");
    FRUGAL_CHECK(more || stream_.avail_out < room,
                 "[{}] truncated gzip in {}: the stream has no end after {} compressed bytes", op_,
                 path_, consumed_);
  }
  return got;
}

void ByteStream::end_member() {
  if (!refill()) {
    ended_ = true;
    return;
  }
  // The second byte of the magic number may be in the next chunk; zlib checks it.
  FRUGAL_CHECK(buffer_[begin_] == 0x1f,
               "[{}] expected {} to end with its gzip stream, got {} trailing bytes at compressed "
               "offset {}",
               op_, path_, file_bytes_ - consumed_, consumed_);
  inflateReset(&stream_);
}

}  // namespace frugal::data
