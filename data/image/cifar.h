// CIFAR-10 and CIFAR-100 in the binary version: records of one (CIFAR-100: coarse and fine) label
// byte and 3072 pixels, channel planes R, G, B of 32 x 32 each.  Ref: Krizhevsky 2009.
#pragma once
#include <string>
#include <vector>

#include "data/memory_dataset.h"

namespace frugal::data {

enum class Cifar : uint8_t { c10, c100 };

// `pixels` as [N, 32, 32, 3] (channels last), `labels` the fine ones.
struct CifarRecords {
  std::vector<uint8_t> pixels;
  std::vector<int64_t> labels;
};

// Adds a file's records to `out`. `records`: how many it must hold, 0 for any whole number above 0.
// Errors: missing file, another size, a label out of range, naming file, record and offset.
void read_cifar_file(const std::string& path, Cifar kind, int64_t records, CifarRecords& out);

// The published files in `folder`, or in its cifar-10-batches-bin / cifar-100-binary: 50000 or
// 10000 images. Errors: as above.
DatasetPtr open_cifar(const std::string& folder, Cifar kind, bool train);

}  // namespace frugal::data
