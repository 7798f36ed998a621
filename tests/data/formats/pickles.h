// Pickles as Python 2 writes them (protocol 2), made by hand for tests.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/data/formats/bytes.h"

namespace frugal_test {

inline std::string pickled_int(int64_t value) {
  return cat("J", little(static_cast<uint32_t>(value), 4));
}

inline std::string pickled_text(const std::string& text) {
  return cat("U", little(text.size(), 1), text);
}

// A numpy array; `dtype` as "i4", `shape` of 1 or 2 extents.
inline std::string pickled_array(const std::string& dtype, const std::vector<int64_t>& shape,
                                 const std::string& bytes, bool fortran = false) {
  std::string extents;
  for (const int64_t extent : shape) extents += pickled_int(extent);
  const std::string zero("K\0", 2);
  return cat("cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n", zero, "\x85",
             pickled_text("b"), "\x87R(K\x01(", extents, "tcnumpy\ndtype\n", pickled_text(dtype),
             zero, "K\x01\x87R(K\x03", pickled_text("<"), "NNN", pickled_int(-1), pickled_int(-1),
             zero, "tb", fortran ? "\x88" : "\x89", "T", little(bytes.size(), 4), bytes, "tb");
}

// A scipy csr_matrix of f4.
inline std::string pickled_csr(int64_t rows, int64_t cols, const std::vector<int32_t>& row_ptr,
                               const std::vector<int32_t>& col, const std::vector<float>& value) {
  const auto extent = [](const auto& values) { return static_cast<int64_t>(values.size()); };
  return cat("cscipy.sparse.csr\ncsr_matrix\n)\x81}(", pickled_text("format"), pickled_text("csr"),
             pickled_text("_shape"), pickled_int(rows), pickled_int(cols), "\x86",
             pickled_text("indptr"), pickled_array("i4", {extent(row_ptr)}, raw_bytes(row_ptr)),
             pickled_text("indices"), pickled_array("i4", {extent(col)}, raw_bytes(col)),
             pickled_text("data"), pickled_array("f4", {extent(value)}, raw_bytes(value)), "ub");
}

// collections.defaultdict(list, {i: lists[i]}).
inline std::string pickled_lists(const std::vector<std::vector<int64_t>>& lists) {
  std::string out = "ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R(";
  for (size_t i = 0; i < lists.size(); ++i) {
    out += pickled_int(static_cast<int64_t>(i));
    out += "](";
    for (const int64_t item : lists[i]) out += pickled_int(item);
    out += "e";
  }
  return out + "u";
}

inline std::string protocol2(const std::string& body) { return cat("\x80\x02", body, "."); }

}  // namespace frugal_test
