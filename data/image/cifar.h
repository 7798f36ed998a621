// CIFAR-10 and CIFAR-100 in the binary version. A record is the label (one byte; CIFAR-100: a
// coarse and a fine one) and 3072 bytes of pixels: planes of 32 x 32 for R, G and B.  Ref:
// Krizhevsky 2009.
#pragma once
#include <string>
#include <vector>

#include "data/memory_dataset.h"

namespace frugal::data {

enum class Cifar : uint8_t { c10, c100 };

// Pixels are [N, 32, 32, 3], channels last. Labels of CIFAR-100 are the fine ones.
struct CifarRecords {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
};

// Adds a file's records to `out`, up to the first `most` of them (0: all); the others are not read.
// The file must hold `records` records; 0 accepts any number above 0. Errors (with file, record and
// offset): a missing file; another size; a label out of range.
void read_cifar_file(const std::string& path, Cifar kind, int64_t records, CifarRecords& out,
                     int64_t most = 0);

// The 50000 training or 10000 test images of the published files, or the first `most` of them
// (0: all), in `folder` or in its folder cifar-10-batches-bin or cifar-100-binary. No others are
// read. Errors: those of read_cifar_file.
DatasetPtr open_cifar(const std::string& folder, Cifar kind, bool train, int64_t most = 0);

}  // namespace frugal::data
