// Python pickles of the kinds that graph datasets have: arrays, sparse matrices and dictionaries of
// lists, in protocols 0 to 2. Nothing is imported or called. Names outside a short list (of numpy,
// scipy and collections) are errors.
// Ref: Python, "pickletools" (the opcodes); NumPy, ndarray.__reduce__ and dtype.__reduce__.
#pragma once
#include <string>
#include <vector>

#include "data/graph/graph_data.h"

namespace frugal::data {

// Errors of all three readers (each with path and offset): an unreadable or truncated file; an
// unknown opcode or name; a stack that does not hold what an opcode needs; a file above 1 GiB or
// with more than 2^22 values; an object of another kind.

// A numpy array of the dtypes of read_npy.
Tensor read_pickle_array(const std::string& path);

// A scipy csr_matrix. Errors: those of make_csr, too.
CsrMatrix read_pickle_csr(const std::string& path);

// A dict or defaultdict of lists of integers, in the file's order.
struct PickleLists {
  std::vector<int64_t> keys;
  std::vector<std::vector<int64_t>> lists;
};
PickleLists read_pickle_lists(const std::string& path);

}  // namespace frugal::data
