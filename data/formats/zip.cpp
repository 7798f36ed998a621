#include "data/formats/zip.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_set>

#include "core/error.h"
#include "core/quoted.h"

namespace frugal::data {
namespace {

constexpr size_t kChunk = size_t{1} << 18;

uint16_t le16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
uint32_t le32(const uint8_t* p) { return le16(p) | static_cast<uint32_t>(le16(p + 2)) << 16; }
uint64_t le64(const uint8_t* p) { return le32(p) | static_cast<uint64_t>(le32(p + 4)) << 32; }

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50,
                   kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56,
                 kLocatorBytes = 20;

// Deflate codes at most 258 bytes in 2 bits, so no honest entry inflates by more than this.
constexpr int64_t kMaxRatio = 1032;

// The 64-bit sizes of an entry stand in an extra field, in this order, where the 32-bit ones are
// all ones.
void read_extra64(const uint8_t* extra, size_t bytes, uint64_t& size, uint64_t& packed,
                  uint64_t& header) {
  while (bytes >= 4) {
    const uint16_t id = le16(extra), length = le16(extra + 2);
    extra += 4;
    bytes -= 4;
    if (length > bytes) return;
    if (id == 1) {
      size_t at = 0;
      for (uint64_t* value : {&size, &packed, &header}) {
        if (*value != 0xffffffffu) continue;
        if (at + 8 > length) return;
        *value = le64(extra + at);
        at += 8;
      }
      return;
    }
    extra += length;
    bytes -= length;
  }
}

struct Directory {
  uint64_t count, bytes, offset;
};

}  // namespace

ByteStream::ByteStream(const char* op, const std::string& path)
    : op_(op), path_(path), file_(open_file(op, path)), buffer_(kChunk) {
  refill();
  gzip_ = end_ >= 2 && buffer_[0] == 0x1f && buffer_[1] == 0x8b;
  if (!gzip_) return;
  FRUGAL_CHECK(inflateInit2(&stream_, 15 + 16) == Z_OK, "[{}] cannot start zlib for {}", op, path);
  started_ = true;
}

ByteStream::~ByteStream() {
  if (started_) inflateEnd(&stream_);
}

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
  // The second byte of the magic may lie in the next chunk; zlib checks it then.
  FRUGAL_CHECK(buffer_[begin_] == 0x1f,
               "[{}] expected {} to end with its gzip stream, got trailing bytes at compressed "
               "offset {}",
               op_, path_, consumed_);
  inflateReset(&stream_);
}

void ZipFile::read_at(int64_t offset, void* out, size_t count, const char* what) const {
  const bool inside =
      offset >= 0 && offset <= file_bytes_ && count <= static_cast<uint64_t>(file_bytes_ - offset);
  FRUGAL_CHECK(inside && fseeko(file_.get(), offset, SEEK_SET) == 0 &&
                   std::fread(out, 1, count, file_.get()) == count,
               "[{}] expected {} bytes of {} at offset {} of {}, which has {}: is it truncated?",
               op_, count, what, offset, path_, file_bytes_);
}

ZipFile ZipFile::open(const char* op, const std::string& path) {
  ZipFile zip;
  zip.op_ = op;
  zip.path_ = path;
  zip.file_ = open_file(op, path);
  zip.file_bytes_ = file_size(op, path);
  // The end record is the last thing but a comment of up to 65535 bytes.
  const auto tail_bytes =
      static_cast<size_t>(std::min<int64_t>(zip.file_bytes_, 65535 + int64_t{kEndBytes}));
  std::vector<uint8_t> tail(tail_bytes);
  const int64_t tail_begin = zip.file_bytes_ - static_cast<int64_t>(tail_bytes);
  zip.read_at(tail_begin, tail.data(), tail_bytes, "the zip directory");
  size_t at = tail_bytes + 1;
  for (size_t i = tail_bytes >= kEndBytes ? tail_bytes - kEndBytes + 1 : 0;
       i > 0 && at > tail_bytes; --i)
    if (le32(tail.data() + i - 1) == kEnd) at = i - 1;
  FRUGAL_CHECK(
      at <= tail_bytes,
      "[{}] expected a zip archive in {}, got a file without a directory: is it truncated?", op,
      path);
  const uint8_t* end = tail.data() + at;
  FRUGAL_CHECK(le16(end + 4) == 0 && le16(end + 6) == 0,
               "[{}] expected a zip archive in one part in {}", op, path);
  Directory directory{le16(end + 10), le32(end + 12), le32(end + 16)};
  const int64_t end_offset = tail_begin + static_cast<int64_t>(at);
  if (end_offset >= static_cast<int64_t>(kLocatorBytes)) {
    uint8_t locator[kLocatorBytes], end64[kEnd64Bytes];
    zip.read_at(end_offset - static_cast<int64_t>(kLocatorBytes), locator, kLocatorBytes,
                "the zip64 locator");
    if (le32(locator) == kLocator64) {
      zip.read_at(static_cast<int64_t>(le64(locator + 8) & INT64_MAX), end64, kEnd64Bytes,
                  "the zip64 directory");
      FRUGAL_CHECK(le32(end64) == kEnd64, "[{}] corrupt zip64 directory in {}", op, path);
      directory = {le64(end64 + 32), le64(end64 + 40), le64(end64 + 48)};
    }
  }
  const auto limit = static_cast<uint64_t>(end_offset);
  FRUGAL_CHECK(directory.offset <= limit && directory.bytes <= limit - directory.offset &&
                   directory.count <= directory.bytes / kCentralBytes,
               "[{}] the zip directory of {} lies outside of the file: {} entries in {} bytes at "
               "offset {}",
               op, path, directory.count, directory.bytes, directory.offset);
  std::vector<uint8_t> bytes(static_cast<size_t>(directory.bytes));
  zip.read_at(static_cast<int64_t>(directory.offset), bytes.data(), bytes.size(),
              "the zip directory");
  std::unordered_set<std::string> names;
  size_t p = 0;
  for (uint64_t i = 0; i < directory.count; ++i) {
    const auto where = static_cast<int64_t>(directory.offset + p);
    FRUGAL_CHECK(bytes.size() - p >= kCentralBytes && le32(bytes.data() + p) == kCentral,
                 "[{}] corrupt zip directory in {} at offset {}", op, path, where);
    const uint8_t* record = bytes.data() + p;
    const size_t name = le16(record + 28), extra = le16(record + 30), comment = le16(record + 32);
    FRUGAL_CHECK(bytes.size() - p - kCentralBytes >= name + extra + comment,
                 "[{}] corrupt zip directory in {} at offset {}", op, path, where);
    uint64_t size = le32(record + 24), packed = le32(record + 20), header = le32(record + 42);
    read_extra64(record + kCentralBytes + name, extra, size, packed, header);
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(record) + kCentralBytes, name);
    entry.method = le16(record + 10);
    entry.crc = le32(record + 16);
    FRUGAL_CHECK((le16(record + 8) & 1u) == 0 && (entry.method == 0 || entry.method == 8),
                 "[{}] expected stored or deflated entries in {}, got method {}{} for {}", op, path,
                 entry.method, (le16(record + 8) & 1u) != 0 ? ", encrypted," : "",
                 in_quotes(entry.name));
    FRUGAL_CHECK(packed <= limit && header <= limit && size <= limit * kMaxRatio &&
                     (entry.method != 0 || size == packed) &&
                     size <= (packed + 1) * static_cast<uint64_t>(kMaxRatio),
                 "[{}] impossible sizes of {} in {}: {} bytes from {} at offset {}", op,
                 in_quotes(entry.name), path, size, packed, header);
    entry.size = static_cast<int64_t>(size);
    entry.packed = static_cast<int64_t>(packed);
    entry.header = static_cast<int64_t>(header);
    FRUGAL_CHECK(names.insert(entry.name).second,
                 "[{}] expected each name once in {}, got {} twice", op, path,
                 in_quotes(entry.name));
    zip.entries_.push_back(std::move(entry));
    p += kCentralBytes + name + extra + comment;
  }
  return zip;
}

const ZipEntry* ZipFile::find(const std::string& name) const {
  for (const ZipEntry& entry : entries_)
    if (entry.name == name) return &entry;
  return nullptr;
}

ZipReader::ZipReader(const ZipFile& zip, const ZipEntry& entry)
    : zip_(zip), entry_(entry), crc_(static_cast<uint32_t>(crc32(0, nullptr, 0))) {
  uint8_t local[kLocalBytes];
  zip.read_at(entry.header, local, kLocalBytes, "an entry's header");
  FRUGAL_CHECK(le32(local) == kLocal, "[{}] expected the header of {} at offset {} of {}", zip.op_,
               in_quotes(entry.name), entry.header, zip.path_);
  at_ = entry.header + static_cast<int64_t>(kLocalBytes) + le16(local + 26) + le16(local + 28);
  FRUGAL_CHECK(entry.packed <= zip.file_bytes_ - at_,
               "[{}] expected {} bytes of {} at offset {} of {}, which has {}: is it truncated?",
               zip.op_, entry.packed, in_quotes(entry.name), at_, zip.path_, zip.file_bytes_);
  if (entry.method == 0) return;
  FRUGAL_CHECK(inflateInit2(&stream_, -15) == Z_OK, "[{}] cannot start zlib for {}", zip.op_,
               zip.path_);
  started_ = true;
}

ZipReader::~ZipReader() {
  if (started_) inflateEnd(&stream_);
}

size_t ZipReader::inflate_some(uint8_t* out, size_t count) {
  size_t got = 0;
  while (got < count && !ended_) {
    if (begin_ == end_ && taken_ < entry_.packed) {
      buffer_.resize(kChunk);
      begin_ = 0;
      end_ = static_cast<size_t>(std::min<int64_t>(kChunk, entry_.packed - taken_));
      zip_.read_at(at_ + taken_, buffer_.data(), end_, "an entry");
      taken_ += static_cast<int64_t>(end_);
    }
    const size_t room = std::min(count - got, size_t{1} << 30);
    stream_.next_in = buffer_.data() + begin_;
    stream_.avail_in = static_cast<uInt>(end_ - begin_);
    stream_.next_out = out + got;
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    begin_ = end_ - stream_.avail_in;
    got += room - stream_.avail_out;
    ended_ = status == Z_STREAM_END;
    // Z_BUF_ERROR: the entry has no more bytes.
    if (status != Z_OK && !ended_) break;
  }
  return got;
}

size_t ZipReader::read(void* out, size_t count) {
  auto* bytes = static_cast<uint8_t*>(out);
  count = std::min(count, static_cast<size_t>(entry_.size - read_));
  size_t got = count;
  if (entry_.method == 0) {
    zip_.read_at(at_ + read_, bytes, count, "an entry");
  } else {
    got = inflate_some(bytes, count);
  }
  for (size_t i = 0; i < got; i += size_t{1} << 30)
    crc_ = static_cast<uint32_t>(
        crc32(crc_, bytes + i, static_cast<uInt>(std::min(got - i, size_t{1} << 30))));
  read_ += static_cast<int64_t>(got);
  FRUGAL_CHECK(got == count, "[{}] corrupt deflated data of {} in {}: expected {} bytes, got {}",
               zip_.op_, in_quotes(entry_.name), zip_.path_, entry_.size, read_);
  return got;
}

void ZipReader::finish() {
  uint8_t beyond = 0;  // one byte of room tells entries that hold more than they say
  const bool whole = read_ == entry_.size &&
                     (entry_.method == 0 || ended_ || (inflate_some(&beyond, 1) == 0 && ended_));
  FRUGAL_CHECK(whole, "[{}] corrupt deflated data of {} in {}: expected {} bytes, got others",
               zip_.op_, in_quotes(entry_.name), zip_.path_, entry_.size);
  FRUGAL_CHECK(crc_ == entry_.crc, "[{}] wrong checksum of {} in {}: expected {:08x}, got {:08x}",
               zip_.op_, in_quotes(entry_.name), zip_.path_, entry_.crc, crc_);
}

}  // namespace frugal::data
