#include "compress/foreign/form_kernels.h"
#include "core/cuda/cuda_kernel.h"
#include "core/finite.h"
#include "core/random/philox.h"

namespace frugal::compress::foreign {
namespace {

using namespace cuda;

// Calls f with a zero of the unsigned type of so many bytes.
template <class F>
void with_word(int size, const F& f) {
  if (size == 1) return f(uint8_t{0});
  if (size == 2) return f(uint16_t{0});
  if (size == 4) return f(uint32_t{0});
  FRUGAL_ASSERT(size == 8);
  f(uint64_t{0});
}

// Where the element of bit k of a byte is, and how far the next bit's is from it.
struct BitPlace {
  int64_t first, step;
  int count;
};
__device__ __forceinline__ BitPlace bit_place(const BitLayout& layout, int64_t byte) {
  const int64_t whole = layout.whole_bytes();
  if (byte < whole)
    return {byte / layout.cols * 8 * layout.cols + byte % layout.cols, layout.cols, 8};
  const int64_t first = whole * 8 + (byte - whole) * 8, left = layout.elements - first;
  return {first, 1, static_cast<int>(left < 8 ? left : 8)};
}

template <class Word>
struct WriteBits {
  BitWriting job;
  __device__ void operator()(int64_t byte) const {
    const auto* x = static_cast<const Word*>(job.x);
    const BitPlace at = bit_place(job.layout, byte);
    uint32_t bits = 0;
    for (int k = 0; k < at.count; ++k) {
      const uint64_t word = x[at.first + k * at.step];
      bits |= (word != 0 && word <= job.most ? 1u : 0u) << k;
    }
    job.to[byte] = static_cast<uint8_t>(bits);
  }
};

template <class Word>
struct ReadBits {
  BitReading job;
  __device__ void operator()(int64_t byte) const {
    auto* to = static_cast<Word*>(job.to);
    const BitPlace at = bit_place(job.layout, byte);
    const uint32_t bits = job.from[byte];
    for (int k = 0; k < at.count; ++k)
      to[at.first + k * at.step] = static_cast<Word>((bits >> k & 1) != 0 ? job.ones : job.zeros);
  }
};

// A block of threads has kOddBlock values, and each thread has kValues of them.
constexpr int kThreads = 256, kValues = 8;
static_assert(kThreads * kValues == kOddBlock);

__global__ void __launch_bounds__(kThreads) write_levels(LevelWriting job) {
  __shared__ float levels[256];
  const int thread = static_cast<int>(threadIdx.x);
  if (thread <= job.last()) levels[thread] = job.levels[thread];
  __syncthreads();
  const float scale = static_cast<float>(job.last()) / (levels[job.last()] - levels[0]);
  const int64_t blocks = (job.elements + kOddBlock - 1) / kOddBlock;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const int64_t eight = block * kThreads + thread, first = eight * kValues;
    const int64_t left = job.elements - first;
    const int count = static_cast<int>(left < 0 ? 0 : left < kValues ? left : kValues);
    int odd = 0;
    if (count > 0) {
      const Words words = philox_words(job.key, static_cast<uint64_t>(eight));
      uint64_t packed = 0;
      for (int k = 0; k < count; ++k) {
        const float value = job.x[first + k];
        const bool finite = is_finite(value);
        odd += finite ? 0 : 1;
        const uint64_t code = job.code(finite ? value : levels[0], k, words.w, levels, scale);
        packed |= code << (k * job.width);
      }
      for (int byte = 0; byte < (count * job.width + 7) / 8; ++byte)
        job.codes[eight * job.width + byte] = static_cast<uint8_t>(packed >> (8 * byte));
    }
    odd = block_sum(odd);
    if (thread == 0) job.odd[block] = odd == 0 ? 0 : 1;
  }
}

template <class Word>
__global__ void __launch_bounds__(kThreads) read_levels(LevelReading job) {
  __shared__ Word table[256];
  table[threadIdx.x] = static_cast<Word>(job.table[threadIdx.x]);
  __syncthreads();
  const uint32_t mask = (1u << job.width) - 1;
  const int per_byte = 8 / job.width;
  for (int64_t i = first_index(); i < job.elements; i += index_stride()) {
    const uint32_t code =
        static_cast<uint32_t>(job.codes[i / per_byte]) >> (i % per_byte * job.width) & mask;
    static_cast<Word*>(job.to)[i] =
        job.odd[i / kOddBlock] != 0 ? static_cast<Word>(job.nan) : table[code];
  }
}

struct WritePlaces {
  PlaceWriting job;
  __device__ void operator()(int64_t byte) const {
    const int64_t per_byte = 8 / job.width, first = byte * per_byte;
    uint32_t codes = 0;
    for (int64_t k = 0; k < per_byte && first + k < job.elements; ++k) {
      const int64_t distance = job.x[first + k] - job.places.origin(first + k);
      codes |= static_cast<uint32_t>(job.places.place(distance)) << (k * job.width);
    }
    job.codes[byte] = static_cast<uint8_t>(codes);
  }
};

struct ReadPlaces {
  PlaceReading job;
  __device__ void operator()(int64_t i) const {
    const int64_t per_byte = 8 / job.width;
    const uint32_t byte = job.codes[i / per_byte];
    const uint32_t code = byte >> (i % per_byte * job.width) & ((1u << job.width) - 1);
    job.to[i] = job.places.index(i, static_cast<int64_t>(code));
  }
};

}  // namespace

void write_bits_kernel(Cuda, const BitWriting& job) {
  with_word(job.size,
            [&]<class Word>(Word) { for_each(job.layout.bytes(), WriteBits<Word>{job}); });
}
void read_bits_kernel(Cuda, const BitReading& job) {
  with_word(job.size, [&]<class Word>(Word) { for_each(job.layout.bytes(), ReadBits<Word>{job}); });
}

bool write_levels_kernel(Cuda, const LevelWriting& job) {
  const int64_t blocks = (job.elements + kOddBlock - 1) / kOddBlock;
  launch(write_levels, {blocks_for(blocks * kThreads, kThreads), kThreads}, job);
  return true;
}
void read_levels_kernel(Cuda, const LevelReading& job) {
  with_word(job.size, [&]<class Word>(Word) {
    launch(read_levels<Word>, {blocks_for(job.elements, kThreads), kThreads}, job);
  });
}

bool write_places_kernel(Cuda, const PlaceWriting& job) {
  for_each((job.elements * job.width + 7) / 8, WritePlaces{job});
  return true;
}
void read_places_kernel(Cuda, const PlaceReading& job) { for_each(job.elements, ReadPlaces{job}); }

}  // namespace frugal::compress::foreign
