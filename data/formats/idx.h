// IDX files, plain or gzipped: the layout of MNIST and Fashion-MNIST.
// Format: two zero bytes, type (08: unsigned byte), number of axes, one big-endian u32 per axis,
// data.
#pragma once
#include <string>
#include <vector>

#include "data/memory_dataset.h"

namespace frugal::data {

struct IdxArray {
  Shape shape;  // 1 to 4 axes
  std::vector<uint8_t> values;
};

// Gzip is recognised by its first bytes, not by the name.
// Errors (each with file, offset and expectation): unreadable, wrong magic, type or axes, a header
// that promises more or less than the file holds, trailing bytes, corrupt or truncated gzip.
IdxArray read_idx(const std::string& path);

// `folder`/{train,t10k}-{images-idx3,labels-idx1}-ubyte, or the same with .gz: images [N, H, W, 1].
// Errors: those of read_idx, a missing file, as many labels as images not given, a label outside
// [0, classes).
DatasetPtr open_idx(const std::string& folder, bool train, int64_t classes = 10);

}  // namespace frugal::data
