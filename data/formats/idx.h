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

// Reads a file, which may be gzipped: its first bytes tell, not its name. Keeps up to `most` items
// of its first axis (0: all). The others are checked, and take no memory.
// Errors (each with file, offset and what was expected): an unreadable file; a wrong magic number,
// type or number of axes; more or fewer data than the header says; corrupt or truncated gzip.
IdxArray read_idx(const std::string& path, int64_t most = 0);

// The images [N, H, W, 1] and labels in `folder`/{train,t10k}-{images-idx3,labels-idx1}-ubyte or in
// files with these names and .gz; or the first `most` of them (0: all). Errors: those of read_idx;
// a missing file; not one label for each image; a label outside [0, classes).
DatasetPtr open_idx(const std::string& folder, bool train, int64_t classes = 10, int64_t most = 0);

}  // namespace frugal::data
