#include "data/formats/idx.h"

#include <algorithm>

#include "data/formats/byte_stream.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

std::string find(const std::string& folder, const std::string& name) {
  const std::string plain = folder + "/" + name, zipped = plain + ".gz";
  if (is_file(plain)) return plain;
  if (is_file(zipped)) return zipped;
  throw MissingFiles(fmt::format("[idx] expected {0} or {0}.gz in {1}, got neither", name, folder));
}

}  // namespace

IdxArray read_idx(const std::string& path, int64_t most) {
  ByteStream source("idx", path);
  size_t begin = 0;  // offset of the next bytes in the unpacked file
  const auto header = [&](uint8_t* out, const char* what) {
    const size_t got = source.read(out, 4);
    FRUGAL_CHECK(got == 4, "[idx] truncated file {}: expected 4 bytes of {} at offset {}, got {}",
                 path, what, begin, got);
    begin += 4;
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
                 "[idx] impossible extents in {}: they overflow at offset {}", path, begin - 4);
    array.shape.push_back(static_cast<int64_t>(extent));
  }
  const Shape whole = array.shape;
  size_t kept = expected;
  if (most > 0 && most < array.shape[0]) {
    kept = expected / static_cast<size_t>(array.shape[0]) * static_cast<size_t>(most);
    array.shape[0] = most;
  }
  // The header may be wrong, so memory grows with the data that the file holds. reserve() takes
  // addresses, not memory; without it, a growing vector would hold up to twice as much.
  array.values.reserve(std::min({kept, static_cast<size_t>(source.limit()), size_t{1} << 30}));
  constexpr size_t kStep = size_t{16} << 20, kRest = size_t{64} << 10;
  std::vector<uint8_t> rest;  // what is not kept, piece by piece
  for (size_t have = 0; have < expected;) {
    const bool keeps = have < kept;
    const size_t want = keeps ? std::min(kStep, kept - have) : std::min(kRest, expected - have);
    std::vector<uint8_t>& to = keeps ? array.values : rest;
    to.resize(keeps ? have + want : want);
    const size_t got = source.read(to.data() + (keeps ? have : 0), want);
    FRUGAL_CHECK(got == want,
                 "[idx] truncated file {}: expected {} bytes of data {} at offset {}, got {}", path,
                 expected, whole, begin, have + got);
    have += got;
  }
  uint8_t extra;
  FRUGAL_CHECK(source.read(&extra, 1) == 0,
               "[idx] expected {} to end at offset {} after data {}, got trailing bytes", path,
               begin + expected, whole);
  return array;
}

DatasetPtr open_idx(const std::string& folder, bool train, int64_t classes, int64_t most) {
  const std::string stem = train ? "train" : "t10k";
  const std::string images_path = find(folder, stem + "-images-idx3-ubyte");
  const std::string labels_path = find(folder, stem + "-labels-idx1-ubyte");
  IdxArray images = read_idx(images_path, most);
  const IdxArray labels = read_idx(labels_path, most);
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
