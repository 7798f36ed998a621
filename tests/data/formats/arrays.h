// NumPy arrays and zip archives, made by hand for tests.
#pragma once
#include <zlib.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/data/formats/bytes.h"

namespace frugal_test {

inline std::string npy(const std::string& header, const std::string& data) {
  return cat("\x93NUMPY\x01", std::string(1, '\0'), little(header.size(), 2), header, data);
}

// `descr` as "<i4", `shape` as "(2, 3)".
inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                       const char* fortran = "False") {
  return npy(
      cat("{'descr': '", descr, "', 'fortran_order': ", fortran, ", 'shape': ", shape, ", }\n"),
      data);
}

template <class T>
std::string npy_of(const std::string& descr, const std::vector<T>& values) {
  return npy(descr, cat("(", std::to_string(values.size()), ",)"), raw_bytes(values));
}

inline std::string deflated(const std::string& content) {
  z_stream stream{};
  // A small window: a large one takes longer to make than most content to pack.
  deflateInit2(&stream, 6, Z_DEFLATED, -9, 1, Z_DEFAULT_STRATEGY);
  std::string in = content, out(deflateBound(&stream, static_cast<uLong>(content.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// An archive of (name, content); `wide` writes the sizes into zip64 fields, as NumPy may.
inline std::string zip(const std::vector<std::pair<std::string, std::string>>& entries,
                       bool deflate = false, bool wide = false) {
  std::string out, directory;
  for (const auto& [name, content] : entries) {
    const std::string data = deflate ? deflated(content) : content;
    const auto crc =
        crc32(0, reinterpret_cast<const Bytef*>(content.data()), static_cast<uInt>(content.size()));
    const std::string none(4, '\xff');
    const std::string extra =
        wide ? cat(little(1, 2), little(16, 2), little(content.size(), 8), little(data.size(), 8))
             : "";
    const std::string common =
        cat(little(45, 2), little(0, 2), little(deflate ? 8 : 0, 2), little(0, 4), little(crc, 4),
            wide ? none : little(data.size(), 4), wide ? none : little(content.size(), 4),
            little(name.size(), 2), little(extra.size(), 2));
    directory += cat("PK\1\2", little(45, 2), common, little(0, 2), little(0, 2), little(0, 2),
                     little(0, 4), little(out.size(), 4), name, extra);
    out += cat("PK\3\4", common, name, extra, data);
  }
  return cat(out, directory, "PK\5\6", little(0, 4), little(entries.size(), 2),
             little(entries.size(), 2), little(directory.size(), 4), little(out.size(), 4),
             little(0, 2));
}

// The four arrays of a sparse matrix, named PREFIXdata and so on.
inline void add_csr(std::vector<std::pair<std::string, std::string>>& entries,
                    const std::string& prefix, int64_t rows, int64_t cols,
                    const std::vector<int32_t>& row_ptr, const std::vector<int32_t>& col,
                    const std::vector<float>& value) {
  entries.emplace_back(cat(prefix, "data.npy"), npy_of("<f4", value));
  entries.emplace_back(cat(prefix, "indices.npy"), npy_of("<i4", col));
  entries.emplace_back(cat(prefix, "indptr.npy"), npy_of("<i4", row_ptr));
  entries.emplace_back(cat(prefix, "shape.npy"), npy_of<int64_t>("<i8", {rows, cols}));
}

}  // namespace frugal_test
