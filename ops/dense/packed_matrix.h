// Matrices in few bits, for weights that do not train. Products read them in tiles
// (ops/dense/packed_linear.h), so no matrix is whole in f32 again.
//
//   bf16   the values, rounded to nearest even: 16 bits an element.
//   int8   a code from -127 to 127 (two's complement, in a byte) times the scale of its row, which
//          is the largest magnitude of the row / 127. 8 bits an element and 32 a row.
//   nf4    the elements in row-major order are in blocks of 64. An element is the nearest of the 16
//          numbers of NormalFloat (nf4_values()) times the scale of its block, which is the largest
//          magnitude in the block. A byte has two codes; the first element is in the high half.
//          Scales are packed once more (double quantization): less their mean over the matrix, they
//          are the 8-bit numbers of ops/optimizer/blockwise.h, in blocks of 256 with a scale in
//          f32. 4 + 8/64 + 32/(64 * 256) = 4.127 bits an element. The bytes are those that the
//          library bitsandbytes keeps for nf4 with double quantization.
//
// An unpacked element is the same f32 on every device, for f64 widened and for bf16 rounded.
// Ref: Dettmers, Pagnoni, Holtzman, Zettlemoyer 2023 (QLoRA), section 3 and appendix E; Dettmers,
// Lewis, Belkada, Zettlemoyer 2022 (LLM.int8()), section 2.1.
#pragma once
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace frugal::ops {

enum class MatrixFormat : uint8_t { f32, bf16, int8, nf4 };  // f32: not packed
std::string_view name_of(MatrixFormat format);

inline constexpr int64_t kNf4Block = 64;

const std::array<float, 16>& nf4_values();  // in increasing order, from -1 to 1

struct PackedMatrix {
  MatrixFormat format = MatrixFormat::f32;
  int64_t rows = 0, columns = 0;
  Tensor codes;   // bf16: [rows, columns] bf16; int8: [rows, columns] u8; nf4: [ceil(n / 2), 1] u8
  Tensor scales;  // int8: [rows] f32; nf4: [ceil(n / 64)] u8
  Tensor scale_blocks;  // nf4: [ceil(scales / 256)] f32
  Tensor scale_mean;    // nf4: [1] f32

  bool defined() const { return codes.defined(); }
  Device device() const { return codes.device(); }
  int64_t nbytes() const;
  // The tensors that the format has, with the endings of their names in files: "", ".absmax",
  // ".nested_absmax" and ".nested_offset".
  std::vector<std::pair<const char*, Tensor*>> parts();
  std::vector<std::pair<const char*, const Tensor*>> parts() const;
};

// A matrix without values, of category `parameter`. REQUIRES: a format that is not f32.
PackedMatrix empty_packed(MatrixFormat format, int64_t rows, int64_t columns, Device device);

// matrix [rows, columns] in f32, bf16 or f16, on the CPU or on `meta`. The result is of category
// `parameter`.  Errors: another shape or device; values that are not finite.
PackedMatrix pack_matrix(const Tensor& matrix, MatrixFormat format);

// The part of a matrix that a product reads at once.
struct Tile {
  int64_t row = 0, rows = 0, column = 0, columns = 0;
};
// [tile.rows, tile.columns] of category `workspace`.  REQUIRES: the tile lies in the matrix.
Tensor unpack_tile(const PackedMatrix& matrix, const Tile& tile, DType dtype);
void unpack_tile_kernel(Cpu, const PackedMatrix& matrix, const Tile& tile, const Tensor& to);
void unpack_tile_kernel(Cuda, const PackedMatrix& matrix, const Tile& tile, const Tensor& to);

// The whole matrix, f32 unless told otherwise, in CategoryScope::current(). For files, never for
// products.
Tensor unpack_matrix(const PackedMatrix& matrix, DType dtype = DType::f32);

// Elements [column, column + n) of a row of a matrix on the CPU.
void unpack_row(const PackedMatrix& matrix, int64_t row, int64_t column, int64_t n, float* to);

// The scale of each block of 64 elements of an nf4 matrix on the CPU.
float nf4_scale(const PackedMatrix& matrix, int64_t block);

}  // namespace frugal::ops
