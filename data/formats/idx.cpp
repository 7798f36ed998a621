#include "data/formats/idx.h"

#include <zlib.h>

#include <algorithm>

#include "data/formats/file_bytes.h"

namespace frugal::data {
namespace {

// Delivers a file's bytes in order, inflated when it is gzipped; at most kChunk bytes of the file
// are in memory. Offsets in messages are of the delivered bytes unless they say "compressed".
class ByteSource {
 public:
  explicit ByteSource(const std::string& path)
      : path_(path), file_(open_file("idx", path)), size_(file_size("idx", path)) {
    gzip_ = ensure(2) && chunk_[0] == 0x1f && chunk_[1] == 0x8b;
    if (!gzip_) return;
    FRUGAL_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "[idx] cannot start zlib for {}", path);
    started_ = true;
  }
  ~ByteSource() {
    if (started_) inflateEnd(&stream_);
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Up to `count` further bytes into out; fewer only at the end.
  size_t read(uint8_t* out, size_t count) {
    const size_t got = gzip_ ? inflate_some(out, count) : copy_some(out, count);
    offset_ += got;
    return got;
  }
  size_t offset() const { return offset_; }
  // The bytes that this file can deliver at most.
  size_t limit() const { return static_cast<size_t>(size_) * (gzip_ ? kMostInflated : 1); }

 private:
  // Whether `count` bytes (at most kChunk) of the file are in chunk_ from at_ on; reads on for
  // them.
  bool ensure(size_t count) {
    if (chunk_.size() - at_ >= count) return true;
    chunk_.erase(chunk_.begin(), chunk_.begin() + static_cast<std::ptrdiff_t>(at_));
    at_ = 0;
    const size_t have = chunk_.size();
    chunk_.resize(kChunk);
    chunk_.resize(have + std::fread(chunk_.data() + have, 1, kChunk - have, file_.get()));
    FRUGAL_CHECK(std::ferror(file_.get()) == 0, "[idx] cannot read {} at offset {}", path_,
                 position_);
    return chunk_.size() >= count;
  }
  void advance(size_t bytes) {
    at_ += bytes;
    position_ += bytes;
  }

  size_t copy_some(uint8_t* out, size_t count) {
    size_t got = 0;
    while (got < count && ensure(1)) {
      const size_t piece = std::min(count - got, chunk_.size() - at_);
      std::copy_n(chunk_.data() + at_, piece, out + got);
      advance(piece);
      got += piece;
    }
    return got;
  }

  size_t inflate_some(uint8_t* out, size_t count) {
    size_t got = 0;
    while (got < count && !ended_) {
      const size_t in = ensure(1) ? chunk_.size() - at_ : 0;
      const size_t room = std::min<size_t>(count - got, kChunk);
      stream_.next_in = chunk_.data() + at_;
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = out + got;
      stream_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      advance(in - stream_.avail_in);
      got += room - stream_.avail_out;
      if (status == Z_STREAM_END) {
        end_member();
        continue;
      }
      FRUGAL_CHECK(status == Z_OK || (status == Z_BUF_ERROR && in == 0),
                   "[idx] corrupt gzip in {} at compressed offset {}: {}", path_, position_,
                   stream_.msg != nullptr ? stream_.msg : "invalid data");
      FRUGAL_CHECK(in > 0 || stream_.avail_out < room,
                   "[idx] truncated gzip in {}: the stream has no end after {} compressed bytes",
                   path_, position_);
    }
    return got;
  }

  // A gzip file may hold several members; anything else after one is not ours.
  void end_member() {
    if (!ensure(1)) {
      ended_ = true;
      return;
    }
    FRUGAL_CHECK(ensure(2) && chunk_[at_] == 0x1f && chunk_[at_ + 1] == 0x8b,
                 "[idx] expected {} to end with its gzip stream, got {} trailing bytes at "
                 "compressed offset {}",
                 path_, static_cast<size_t>(size_) - position_, position_);
    inflateReset(&stream_);
  }

  static constexpr size_t kChunk = size_t{1} << 20;
  static constexpr size_t kMostInflated = 1032;  // bytes of a compressed byte, by zlib's format
  std::string path_;
  FileHandle file_;
  int64_t size_;
  std::vector<uint8_t> chunk_;
  size_t at_ = 0, position_ = 0, offset_ = 0;
  bool gzip_ = false, started_ = false, ended_ = false;
  z_stream stream_{};
};

std::string find(const std::string& folder, const std::string& name) {
  const std::string plain = folder + "/" + name, zipped = plain + ".gz";
  if (is_file(plain)) return plain;
  FRUGAL_CHECK(is_file(zipped), "[idx] expected {} or {}.gz in {}, got neither", name, name,
               folder);
  return zipped;
}

}  // namespace

IdxArray read_idx(const std::string& path) {
  ByteSource source(path);
  const auto header = [&](uint8_t* out, const char* what) {
    const size_t at = source.offset(), got = source.read(out, 4);
    FRUGAL_CHECK(got == 4, "[idx] truncated file {}: expected 4 bytes of {} at offset {}, got {}",
                 path, what, at, got);
  };
  uint8_t magic[4];
  header(magic, "magic");
  FRUGAL_CHECK(magic[0] == 0 && magic[1] == 0,
               "[idx] wrong magic in {}: expected 00 00 at offset 0, got {:02x} {:02x}", path,
               magic[0], magic[1]);
  FRUGAL_CHECK(magic[2] == 0x08,
               "[idx] expected type 08 (unsigned byte) at offset 2 of {}, got {:02x}", path,
               magic[2]);
  FRUGAL_CHECK(magic[3] >= 1 && magic[3] <= 4,
               "[idx] expected 1 to 4 axes at offset 3 of {}, got {}", path, magic[3]);
  IdxArray array;
  size_t expected = 1;
  for (int axis = 0; axis < magic[3]; ++axis) {
    uint8_t be[4];
    header(be, "an extent");
    const size_t extent = static_cast<size_t>(be[0]) << 24 | static_cast<size_t>(be[1]) << 16 |
                          static_cast<size_t>(be[2]) << 8 | be[3];
    FRUGAL_CHECK(!__builtin_mul_overflow(expected, extent, &expected) && expected >> 62 == 0,
                 "[idx] impossible extents in {}: they overflow at offset {}", path,
                 source.offset() - 4);
    array.shape.push_back(static_cast<int64_t>(extent));
  }
  // The header may lie, so memory grows with what the file really holds. Reserved bytes are no more
  // than addresses; a vector that grows would hold up to twice as much.
  const size_t begin = source.offset();
  array.values.reserve(std::min({expected, source.limit(), size_t{1} << 30}));
  constexpr size_t kStep = size_t{16} << 20;
  while (array.values.size() < expected) {
    const size_t have = array.values.size(), want = std::min(kStep, expected - have);
    array.values.resize(have + want);
    const size_t got = source.read(array.values.data() + have, want);
    FRUGAL_CHECK(got == want,
                 "[idx] truncated file {}: expected {} bytes of data {} at offset {}, got {}", path,
                 expected, array.shape, begin, have + got);
  }
  uint8_t extra;
  FRUGAL_CHECK(source.read(&extra, 1) == 0,
               "[idx] expected {} to end at offset {} after data {}, got trailing bytes", path,
               begin + expected, array.shape);
  return array;
}

DatasetPtr open_idx(const std::string& folder, bool train, int64_t classes) {
  const std::string stem = train ? "train" : "t10k";
  const std::string images_path = find(folder, stem + "-images-idx3-ubyte");
  const std::string labels_path = find(folder, stem + "-labels-idx1-ubyte");
  IdxArray images = read_idx(images_path);
  const IdxArray labels = read_idx(labels_path);
  FRUGAL_CHECK(images.shape.dim() == 3, "[idx] expected images [N, H, W] in {}, got {}",
               images_path, images.shape);
  FRUGAL_CHECK(labels.shape == Shape{images.shape[0]},
               "[idx] expected {} labels in {}, one for each image of {}, got {}", images.shape[0],
               labels_path, images_path, labels.shape);
  for (size_t i = 0; i < labels.values.size(); ++i)
    FRUGAL_CHECK(labels.values[i] < classes,
                 "[idx] expected labels in [0, {}), got {} in {} at offset {}", classes,
                 labels.values[i], labels_path, i + 8);
  Shape shape = images.shape;
  shape.push_back(1);
  return std::make_shared<ImageDataset>(
      std::move(images.values), shape,
      std::vector<int64_t>(labels.values.begin(), labels.values.end()), classes);
}

}  // namespace frugal::data
