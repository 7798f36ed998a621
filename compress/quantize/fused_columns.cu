#include "compress/entropy/cuda_decode.h"
#include "compress/quantize/fused_kernels.h"
#include "ops/cuda/cuda_columns.h"

// Passes with coefficients by column. Sums are added in the order in which ops/cuda/cuda_columns.h
// adds them from unpacked x: a thread has the same columns and rows.
namespace frugal::compress {
namespace {

using namespace cuda;

enum class Bits { all, codes, mask };

template <class T>
struct Sums {
  Unpacking u;
  const T* y;
  const uint8_t* mask;
  const float* center;
  T* out;
  ops::cuda::Chunks chunks;
  ops::cuda::Columns columns;
  float* partial;
  Bits bits;
};

__device__ __forceinline__ void swap(float& a, float& b) {
  const float c = a;
  a = b;
  b = c;
}

// N columns a thread, 8 rows and up to 4 of the columns at a time.
template <class T, int N, class Reading, int kClasses>
__global__ void __launch_bounds__(ops::cuda::kSumThreads) sums_kernel(Sums<T> p) {
  constexpr int kHere = N < kCols ? N : kCols;
  __shared__ StreamKeys keys;
  if constexpr (Reading::kDithered) draw_keys(p.u, keys);
  const ops::cuda::Columns::Place place = p.columns.place();
  static_assert(N <= 2 * kHere);
  float value[2 * N] = {};
  if (place.inside) {
    const int64_t c = p.chunks.c, end = p.chunks.end();
    for (int64_t row = p.chunks.begin() + kRows * place.y; row < end;
         row += int64_t{kRows} * p.columns.tall) {
// Not unrolled, which registers would not hold: sums go round instead.
#pragma unroll 1
      for (int part = 0; part < N / kHere; ++part) {
        const int64_t column = place.pack * N + part * kHere, at = row * c + column;
        uint32_t bits = ~0u;
        if (p.bits == Bits::mask)
          bits = load_bytes(p.mask + row / kRows * c + column, kHere, kHere == kCols);
        if (p.bits == Bits::codes) bits = 0;
        ops::cuda::Vector<T, kHere> y[kRowsAtOnce<T>];
        const auto load_rows = [&](int first) {
#pragma unroll
          for (int j = 0; j < kRowsAtOnce<T>; ++j) {
            y[j] = ops::cuda::Vector<T, kHere>{};
            if (row + first + j < end) y[j] = ops::cuda::get_raw<kHere>(p.y + at + (first + j) * c);
          }
        };
        load_rows(0);  // before the codes are read, so that both wait at the same time
        const Decoder<T, Reading, kClasses> codes(
            p.u, place_at(p.u, static_cast<uint32_t>(row / kRows), column, kHere), keys);
        const ops::cuda::Floats<kHere> middle = ops::cuda::get<kHere>(p.center + column);
#pragma unroll
        for (int first = 0; first < kRows; first += kRowsAtOnce<T>) {
          if (first > 0) load_rows(first);
#pragma unroll
          for (int j = 0; j < kRowsAtOnce<T>; ++j) {
            const int r = first + j;
            const bool there = row + r < end;
            uint32_t carried = 0;
            const Quad<float> x = codes.row(r, carried);
            if (p.bits == Bits::codes) bits |= carried;
            ops::cuda::Floats<kHere> kept;
#pragma unroll
            for (int i = 0; i < kHere; ++i) {
              const bool keep = (bits >> (8 * i + r) & 1u) != 0;
              kept.at[i] = keep ? load(y[j].at[i]) : 0;
              value[i] += kept.at[i];
              value[N + i] += kept.at[i] * ((there ? x.at[i] : 0) - middle.at[i]);
            }
            if (p.out != nullptr && there) ops::cuda::put<kHere>(p.out + at + r * c, kept);
          }
        }
        if constexpr (N > kHere) {
#pragma unroll
          for (int i = 0; i < kHere; ++i) {
            swap(value[i], value[kHere + i]);
            swap(value[N + i], value[N + kHere + i]);
          }
        }
      }
    }
  }
  ops::cuda::write_sums<N>(value, p.columns, place, p.chunks.c, p.partial);
}

struct Combination {
  Unpacking u;
  const void* y;
  const float* k;
  const uint8_t* mask;
  Bits bits;
  bool y_quads, k_quads, mask_words;
};

__device__ __forceinline__ Quad<float> coefficients(const Combination& p, const UnpackPlace& at,
                                                    int which) {
  const float* from = p.k + which * p.u.layout.cols + at.column;
  if (p.k_quads) return *reinterpret_cast<const Quad<float>*>(from);
  Quad<float> out{};
#pragma unroll
  for (int c = 0; c < kCols; ++c)
    if (c < at.codes.cols) out.at[c] = from[c];
  return out;
}

template <class T, class Reading, int kClasses>
__global__ void __launch_bounds__(kThreads) combine_kernel(Combination p) {
  __shared__ StreamKeys keys;
  if constexpr (Reading::kDithered) draw_keys(p.u, keys);
  UnpackPlace at;
  if (!find_place(p.u, at)) return;
  Quad<T> y[kRowsAtOnce<T>];
  const auto load_rows = [&](int first) {
#pragma unroll
    for (int j = 0; j < kRowsAtOnce<T>; ++j) y[j] = load_row<T>(p.u, at, first + j, p.y, p.y_quads);
  };
  load_rows(0);  // before the codes are read, so that both wait at the same time
  const Decoder<T, Reading, kClasses> codes(p.u, at, keys);
  uint32_t bits = p.bits == Bits::codes ? 0 : ~0u;
  if (p.bits == Bits::mask)
    bits = load_bytes(p.mask + (at.row * p.u.layout.cols - p.u.begin) / kRows + at.column,
                      at.codes.cols, p.mask_words);
  const Quad<float> center = coefficients(p, at, 0), of_y = coefficients(p, at, 1),
                    of_x = coefficients(p, at, 2), constant = coefficients(p, at, 3);
#pragma unroll
  for (int first = 0; first < kRows; first += kRowsAtOnce<T>) {
    if (first > 0) load_rows(first);
#pragma unroll
    for (int j = 0; j < kRowsAtOnce<T>; ++j) {
      const int r = first + j;
      uint32_t carried = 0;
      const Quad<float> x = codes.row(r, carried);
      if (p.bits == Bits::codes) bits |= carried;
      Quad<float> out;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const bool kept = (bits >> (8 * c + r) & 1u) != 0;
        out.at[c] = __fmaf_rn(kept ? load(y[j].at[c]) : 0, of_y.at[c],
                              __fmaf_rn(x.at[c] - center.at[c], of_x.at[c], constant.at[c]));
      }
      store_row<T>(p.u, at, r, out);
    }
  }
}

Bits bits_of(bool in_codes, bool has_mask) {
  return in_codes ? Bits::codes : has_mask ? Bits::mask : Bits::all;
}

// Calls f(Reading<...>{}, std::integral_constant<int, kClasses>{}).
template <class F>
void with_format(const UnpackJob& job, F&& f) {
  with_reading(job, [&](auto reading) {
    job.layout.split ? f(reading, std::integral_constant<int, 2>{})
                     : f(reading, std::integral_constant<int, 1>{});
  });
}

// For rows that have no vectors.
template <class F>
void with_late_format(const UnpackJob& job, F&& f) {
  const auto with_classes = [&](auto reading) {
    job.layout.split ? f(reading, std::integral_constant<int, 2>{})
                     : f(reading, std::integral_constant<int, 1>{});
  };
  job.dithered ? with_classes(Reading<0, true>{}) : with_classes(Reading<0, false>{});
}

}  // namespace

void column_sums_codes_kernel(Cuda, const ColumnSumsJob& job) {
  const UnpackJob& codes = job.codes;
  const GroupLayout& layout = codes.layout;
  check_dtype(codes.dtype);
  const int64_t c = layout.cols, step = job.chunk_rows;
  const ops::cuda::Chunks chunks{1, layout.rows, c, step, ceil_div(layout.rows, step)};
  with_activation(codes.dtype, [&]<class T>(T) {
    ops::cuda::with_vectors<T>(c, {&job.y, &job.mask, &job.center, &job.out}, [&](auto n) {
      constexpr int N = n;
      const auto columns =
          ops::cuda::columns_over(c / N, ops::cuda::kSumThreads, ceil_div(step, int64_t{kRows}));
      Sums<T> p{unpacking(codes),
                job.y.data<T>(),
                ops::cuda::mut_or_null<uint8_t>(job.mask),
                job.center.data<float>(),
                ops::cuda::mut_or_null<T>(job.out),
                chunks,
                columns,
                job.partial.mut<float>(),
                bits_of(job.mask_in_codes, job.mask.defined())};
      p.u.words = p.u.words && N % kCols == 0;
      const Grid grid{as_blocks(chunks.chunks, columns.tiles), columns.threads,
                      static_cast<size_t>(columns.threads) * 2 * N * sizeof(float)};
      if constexpr (N == 1)
        with_late_format(codes, [&]<class Reading>(Reading, auto classes) {
          launch(sums_kernel<T, 1, Reading, classes()>, grid, p);
        });
      else
        with_format(codes, [&]<class Reading>(Reading, auto classes) {
          launch(sums_kernel<T, N, Reading, classes()>, grid, p);
        });
    });
  });
}

void combine_codes_kernel(Cuda, const CombineJob& job) {
  const UnpackJob& codes = job.codes;
  const GroupLayout& layout = codes.layout;
  check_dtype(codes.dtype);
  if (codes.begin >= codes.end) return;
  Combination p{unpacking(codes),
                job.y,
                job.k,
                job.mask,
                bits_of(job.mask_in_codes, job.mask != nullptr),
                false,
                is_quadable<float>(job.k, layout),
                is_quadable<uint8_t>(job.mask, layout)};
  with_activation(codes.dtype, [&]<class T>(T) {
    p.u.quads = is_quadable<T>(codes.x, layout);
    p.y_quads = is_quadable<T>(job.y, layout);
    with_format(codes, [&]<class Reading>(Reading, auto classes) {
      launch_blocks(combine_kernel<T, Reading, classes()>, p.u, p);
    });
  });
}

}  // namespace frugal::compress
