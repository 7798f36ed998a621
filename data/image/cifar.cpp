#include "data/image/cifar.h"

#include <algorithm>

#include "data/formats/file_bytes.h"
#include "data/missing_files.h"

namespace frugal::data {
namespace {

constexpr int64_t kPlane = 32 * 32, kPixels = 3 * kPlane;

}  // namespace

void read_cifar_file(const std::string& path, Cifar kind, int64_t records, CifarRecords& out,
                     int64_t most) {
  const int64_t label_bytes = kind == Cifar::c10 ? 1 : 2, classes = kind == Cifar::c10 ? 10 : 100;
  const int64_t record = label_bytes + kPixels, size = file_size("cifar", path);
  FRUGAL_CHECK(size > 0 && size % record == 0 && (records == 0 || size == records * record),
               "[cifar] expected {} records of {} bytes in {}, got {} bytes: {} whole records and "
               "{} bytes more",
               records == 0 ? std::string("whole") : std::to_string(records), record, path, size,
               size / record, size % record);
  // Reads record by record, so that the file's bytes and the pixels are never both in memory.
  const FileHandle file = open_file("cifar", path);
  std::vector<uint8_t> bytes(static_cast<size_t>(record));
  const int64_t count = most > 0 ? std::min(most, size / record) : size / record;
  const size_t first = out.pixels.size();
  out.pixels.resize(first + static_cast<size_t>(count * kPixels));
  uint8_t* pixels = out.pixels.data() + first;
  for (int64_t r = 0; r < count; ++r, pixels += kPixels) {
    FRUGAL_CHECK(std::fread(bytes.data(), 1, bytes.size(), file.get()) == bytes.size(),
                 "[cifar] expected {} bytes in {}, got an error or the end in record {}", size,
                 path, r);
    const uint8_t* in = bytes.data();
    for (int64_t b = 0; b < label_bytes; ++b) {
      const int64_t limit = kind == Cifar::c100 && b == 0 ? 20 : classes;
      FRUGAL_CHECK(in[b] < limit,
                   "[cifar] expected a {}label in [0, {}), got {} in {}, record {} at offset {}",
                   kind == Cifar::c10 ? "" : (b == 0 ? "coarse " : "fine "), limit, in[b], path, r,
                   r * record + b);
    }
    out.labels.push_back(in[label_bytes - 1]);
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t i = 0; i < kPlane; ++i) pixels[i * 3 + c] = in[label_bytes + c * kPlane + i];
  }
}

DatasetPtr open_cifar(const std::string& folder, Cifar kind, bool train, int64_t most) {
  const std::string inner =
      folder + (kind == Cifar::c10 ? "/cifar-10-batches-bin" : "/cifar-100-binary");
  std::vector<std::string> names;
  if (kind == Cifar::c100) {
    names = {train ? "train.bin" : "test.bin"};
  } else if (train) {
    for (int i = 1; i <= 5; ++i) names.push_back("data_batch_" + std::to_string(i) + ".bin");
  } else {
    names = {"test_batch.bin"};
  }
  const bool plain = is_file(folder + "/" + names[0]);
  const bool nested = !plain && is_file(inner + "/" + names[0]);
  if (!plain && !nested)
    throw MissingFiles(fmt::format("[cifar] expected {} in {}, got none", names[0], folder));
  CifarRecords all;
  const int64_t records = kind == Cifar::c100 && train ? 50000 : 10000;
  const int64_t whole = static_cast<int64_t>(names.size()) * records;
  const int64_t wanted = most > 0 ? std::min(most, whole) : whole;
  // Without this, a growing vector would hold up to twice as much.
  all.pixels.reserve(static_cast<size_t>(wanted * kPixels));
  all.labels.reserve(static_cast<size_t>(wanted));
  for (const std::string& name : names) {
    const int64_t missing = wanted - static_cast<int64_t>(all.labels.size());
    if (missing == 0) break;
    read_cifar_file((nested ? inner : folder) + "/" + name, kind, records, all, missing);
  }
  const auto count = static_cast<int64_t>(all.labels.size());
  return std::make_shared<ImageDataset>(std::move(all.pixels), Shape{count, 32, 32, 3},
                                        std::move(all.labels), kind == Cifar::c10 ? 10 : 100);
}

}  // namespace frugal::data
