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

// Whether element [r][c] of a block is kept. kUsual: split codes carry these bits, others do not.
template <bool kUsual, int kClasses>
__device__ __forceinline__ bool is_kept(Bits which, uint32_t bits, bool one, int r, int c) {
  const bool bit = (bits >> (8 * c + r) & 1u) != 0;
  if constexpr (kUsual) return kClasses == 2 ? one : bit;
  return which == Bits::codes ? one : bit;
}
template <int kClasses>
__device__ __forceinline__ bool is_usual(Bits which) {
  return (which == Bits::codes) == (kClasses == 2);
}

// The next rows of y of a thread's columns, as many as are loaded at once. They are asked for
// before the codes are read, so that both wait at the same time.
template <class T, int N, bool kWhole>
struct NextRows {
  static constexpr int kCount = kWhole ? kRows / 2 : 1;
  ops::cuda::Vector<T, N> at[kCount];

  __device__ __forceinline__ void load(const T*& from, int64_t c, int64_t left) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      at[j] = ops::cuda::Vector<T, N>{};
      if (kWhole || j < left) at[j] = ops::cuda::get_raw<N>(from);
      from += c;
    }
  }
};

// 8 rows of a thread's columns, of which `left` are there. kWhole: all of them are there, nothing
// is NaN, and is_usual().
template <bool kWhole, int kClasses, class T, int N, class Codes>
__device__ __forceinline__ void add_rows(const Sums<T>& p, const Codes& codes,
                                         const ops::cuda::Floats<N>& middle, const T* from, T* to,
                                         NextRows<T, N, kWhole>& y, int64_t left, uint32_t bits,
                                         float (&value)[2 * N]) {
  constexpr int kAtOnce = NextRows<T, N, kWhole>::kCount;
  const int64_t c = p.chunks.c;
#pragma unroll
  for (int first = 0; first < kRows; first += kAtOnce) {
    if (first > 0) y.load(from, c, left - first);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int r = first + j;
      const bool there = kWhole || r < left;
      bool one[kCols];
      const Quad<float> x = codes.template row<kWhole>(r, one);
      const ops::cuda::Floats<N> y_row = ops::cuda::floats_of(y.at[j]);
      ops::cuda::Floats<N> kept;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const bool keep = is_kept<kWhole, kClasses>(p.bits, bits, one[i], r, i);
        kept.at[i] = keep ? y_row.at[i] : 0;
        value[i] += kept.at[i];
        value[N + i] = __fmaf_rn(kept.at[i], (there ? x.at[i] : 0) - middle.at[i], value[N + i]);
      }
      if (p.out != nullptr && there) ops::cuda::put<N>(to, kept);
      to += c;
    }
  }
}

template <class T, int N, class Reading, int kClasses>
__global__ void __launch_bounds__(ops::cuda::kGradientThreads, Reading::kBits == 0 ? 2 : 3)
    sums_kernel(Sums<T> p) {
  static_assert(N <= kCols);
  __shared__ StreamKeys keys;
  draw_keys_for<Reading::kDithered, kClasses == 2 && kMayDraw<Reading::kBits>>(p.u, keys);
  const ops::cuda::Columns::Place place = p.columns.place();
  float value[2 * N] = {};
  if (place.inside) {
    const int64_t c = p.chunks.c, column = place.pack * N;
    const ops::cuda::ThreadRows rows = ops::cuda::rows_of_thread(p.chunks, p.columns, place.y);
    const ops::cuda::Floats<N> middle = ops::cuda::get<N>(p.center + column);
    Decoder<T, Reading, kClasses> codes;
    for (int64_t row = rows.begin; row < rows.end; row += kRows) {
      const UnpackPlace at = place_at(p.u, static_cast<uint32_t>(row / kRows), column, N);
      const int64_t left = rows.end - row;
      const bool whole = at.whole && left >= kRows && is_usual<kClasses>(p.bits);
      const T* from = unknown(p.y + (row * c + column));
      T* to = unknown(p.out != nullptr ? p.out + (row * c + column) : nullptr);
      NextRows<T, N, true> y;
      const T* next = from;
      if (whole) y.load(next, c, kRows);
      uint32_t bits = ~0u;
      if (p.bits == Bits::mask) bits = load_bytes(p.mask + row / kRows * c + column, N, N == kCols);
      codes.read(p.u, at, keys);
      if (whole && codes.is_plain()) {
        add_rows<true, kClasses, T, N>(p, codes, middle, next, to, y, left, bits, value);
      } else {
        NextRows<T, N, false> one;
        one.load(from, c, left);
        add_rows<false, kClasses, T, N>(p, codes, middle, from, to, one, left, bits, value);
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

// `y`: the next rows of `from`. kWhole: at.whole, whole accesses, nothing is NaN, and is_usual().
template <class T, bool kWhole, int kClasses, class Codes>
__device__ __forceinline__ void combine_rows(const Combination& p, const UnpackPlace& at,
                                             const Codes& codes, const Quad<float> (&k)[4],
                                             uint32_t bits, BlockRows<const T, kWhole>& from,
                                             Quad<T> (&y)[kRowsAtOnce<T, kWhole>]) {
  constexpr int kAtOnce = kRowsAtOnce<T, kWhole>;
  BlockRows<T, kWhole> to(p.u, at, static_cast<T*>(p.u.x), p.u.quads);
#pragma unroll
  for (int first = 0; first < kRows; first += kAtOnce) {
    if (first > 0) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) y[j] = from.load();
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int r = first + j;
      bool one[kCols];
      const Quad<float> x = codes.template row<kWhole>(r, one);
      const Quad<float> y_row = ops::cuda::floats_of(y[j]);
      Quad<float> out;
#pragma unroll
      for (int c = 0; c < kCols; ++c) {
        const bool kept = is_kept<kWhole, kClasses>(p.bits, bits, one[c], r, c);
        out.at[c] = __fmaf_rn(kept ? y_row.at[c] : 0, k[1].at[c],
                              __fmaf_rn(x.at[c] - k[0].at[c], k[2].at[c], k[3].at[c]));
      }
      to.store(out);
    }
  }
}

template <class T, class Reading, int kClasses>
__global__ void __launch_bounds__(kThreads, Reading::kBits == 0 ? 2 : 3)
    combine_kernel(Combination p) {
  constexpr int kAtOnce = kRowsAtOnce<T, true>;
  __shared__ StreamKeys keys;
  draw_keys_for<Reading::kDithered, kClasses == 2 && kMayDraw<Reading::kBits>>(p.u, keys);
  const ThreadBlocks mine = blocks_of_thread(p.u);
  const T* y = static_cast<const T*>(p.y);
  Decoder<T, Reading, kClasses> codes;
  for (uint32_t i = 0; i < mine.count; ++i) {
    const UnpackPlace at = place_at(p.u, mine.first + i, mine.column, mine.cols);
    const bool whole = at.whole && p.u.quads && p.y_quads && is_usual<kClasses>(p.bits);
    BlockRows<const T, true> from(p.u, at, y, true);
    Quad<T> next[kAtOnce];  // asked for before the codes are read, so that both wait at once
    if (whole) {
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) next[j] = from.load();
    }
    codes.read(p.u, at, keys);
    Quad<float> k[4];  // read again for each block, which leaves registers for the codes
#pragma unroll
    for (int which = 0; which < 4; ++which) k[which] = coefficients(p, at, which);
    uint32_t bits = ~0u;
    if (p.bits == Bits::mask)
      bits = load_bytes(p.mask + (at.row * p.u.layout.cols - p.u.begin) / kRows + at.column,
                        at.codes.cols, p.mask_words);
    if (whole && codes.is_plain()) {
      combine_rows<T, true, kClasses>(p, at, codes, k, bits, from, next);
    } else {
      BlockRows<const T, false> rows(p.u, at, y, p.y_quads);
      Quad<T> one[1] = {rows.load()};
      combine_rows<T, false, kClasses>(p, at, codes, k, bits, rows, one);
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
      constexpr int N = ops::cuda::kGradientColumns<n>;
      const ops::cuda::Columns columns = ops::cuda::gradient_columns<n>(chunks);
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
      const Grid grid = ops::cuda::gradient_grid(chunks, columns, N);
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
