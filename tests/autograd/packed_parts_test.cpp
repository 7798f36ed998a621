// Tensors that were packed in slices.
#include "autograd/packed_parts.h"

#include <doctest/doctest.h>

#include <numeric>

#include "core/memory.h"
#include "tests/autograd/copy_codec.h"

using namespace frugal;

namespace {

constexpr int64_t kPackedRows = 64, kEach = 8, kWide = 512;

Tensor counting() {
  std::vector<float> values(static_cast<size_t>(kPackedRows * kWide));
  std::iota(values.begin(), values.end(), 0.0F);
  return Tensor::from(values, {kPackedRows, kWide});
}

PackedParts in_parts(const Tensor& whole) {
  const CopyCodec codec;
  std::vector<PackedPart> parts;
  for (int64_t row = 0; row < kPackedRows; row += kEach)
    parts.push_back({row, row + kEach,
                     codec.pack(whole.slice(0, row, row + kEach),
                                SaveInfo{.seq = static_cast<uint64_t>(row)})});
  return PackedParts(std::move(parts));
}

}  // namespace

TEST_CASE("parts give the rows of the whole, across their borders") {
  const Tensor whole = counting();
  const PackedParts parts = in_parts(whole);
  CHECK(parts.unpack().to_vector() == whole.to_vector());
  for (const auto& [begin, end] : std::initializer_list<std::pair<int64_t, int64_t>>{
           {0, 8}, {8, 16}, {3, 5}, {5, 30}, {1, 64}}) {
    const auto& this_begin = begin;
    CAPTURE(this_begin);
    const auto& this_end = end;
    CAPTURE(this_end);
    CHECK(parts.unpack_rows(begin, end).to_vector() == whole.slice(0, begin, end).to_vector());
  }
}

TEST_CASE("parts that are joined live beside the whole one after another") {
  const PackedParts parts = in_parts(counting());
  Allocator& memory = allocator(kCpu);
  memory.reset_peak();
  const int64_t before = memory.report().live_total;
  const Tensor all = parts.unpack();
  CHECK(memory.report().peak_total - before <=
        all.nbytes() + 2 * all.nbytes() / (kPackedRows / kEach));
  // A single part is not copied.
  const Tensor one = Tensor::full({kEach, kWide}, 1, DType::f32);
  JoinedRows joined(kEach);
  joined.add(one);
  CHECK(joined.take().storage() == one.storage());
}
