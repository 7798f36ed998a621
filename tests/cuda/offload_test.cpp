// Payloads that leave the device for pinned host memory, and come back.
#include "compress/offload/offload.h"

#include "compress/policies/offload_policy.h"
#include "tests/compress/offload/offload_samples.h"
#include "tests/cuda/packing.h"

using namespace frugal;
using namespace frugal::compress;

namespace {

Tensor there(int64_t bytes, uint64_t seed) {
  const CategoryScope scope(Category::packed);
  return to_device(payload(bytes, seed), gpu::kCuda);
}

int64_t packed_there() { return allocator(gpu::kCuda).report().of(Category::packed); }

}  // namespace

TEST_CASE("payloads on CUDA come back from pinned memory, within the window") {
  if (!gpu::available()) return;
  const TempFolder folder;
  const int64_t before = packed_there(), window = 10000;
  {
    OffloadOptions options;
    options.directory = folder.path();
    options.window = window;
    PayloadStore store(options);
    CHECK(store.host() == nullptr);
    std::vector<PayloadStore::Id> ids;
    std::vector<int64_t> sizes = {4000, 100, 0, 3000, 5000, 7777, 12000, 64, 2500};
    for (size_t i = 0; i < sizes.size(); ++i) {
      ids.push_back(store.put(there(sizes[i], i)));
      CHECK(packed_there() - before <= std::max<int64_t>(window, (sizes[i] + 63) / 64 * 64));
    }
    CHECK(store.host()->stats().out > 20000);
    for (size_t i = sizes.size(); i-- > 0;) {
      if (i > 0) store.prefetch(ids[i - 1]);
      const Tensor back = store.pin(ids[i]);
      CHECK(gpu::same_bits(payload(sizes[i], i), back));
      CHECK(back.storage()->category() == Category::packed);
      store.unpin(ids[i]);
    }
    CHECK(gpu::same_bits(payload(sizes[4], 4), store.pin(ids[4])));  // again, while others wait
    store.unpin(ids[4]);
    CHECK(store.stats().written == 0);
    for (const PayloadStore::Id id : ids) store.drop(id);
    CHECK(store.host()->stats().resident == 0);
    CHECK(store.host()->stats().used == 0);
  }
  CHECK(packed_there() == before);
}

TEST_CASE("a payload on CUDA that was written in place is an error") {
  if (!gpu::available()) return;
  const TempFolder folder;
  OffloadOptions options;
  options.directory = folder.path();
  options.window = 0;
  PayloadStore store(options);
  const Tensor mine = there(64, 1);
  const auto id = store.put(mine), next = store.put(there(64, 2));
  CHECK(gpu::same_bits(payload(64, 1), store.pin(id)));  // it left unchanged
  store.unpin(id);
  const Tensor changed = there(64, 3);
  const auto other = store.put(changed);
  changed.bump_version();
  CHECK_THROWS_WITH_AS(store.pin(other),
                       "[offload] expected a saved [64] u8 unchanged until backward, got one "
                       "written in place",
                       Error);
  for (const auto each : {id, next, other}) store.drop(each);
}

TEST_CASE("any codec's tensors on CUDA unpack from pinned memory as without") {
  if (!gpu::available()) return;
  const TempFolder folder;
  OffloadOptions options;
  options.directory = folder.path();
  options.window = 6000;
  const Quantizer codec({4, 256, GroupAxis::column, Rounding::dithered});
  const Offload offload(codec, std::make_shared<PayloadStore>(options));
  std::vector<std::unique_ptr<Packed>> plain, moved;
  for (uint64_t i = 0; i < 6; ++i) {
    const Tensor x = to_device(gpu::normals({300, 24}, DType::f32, i), gpu::kCuda);
    SaveInfo info;
    info.seq = i;
    plain.push_back(codec.pack(x, info));
    moved.push_back(offload.pack(x, info));
  }
  for (size_t i = 6; i-- > 0;) {
    CHECK(gpu::same_bits(to_device(plain[i]->unpack(), kCpu), moved[i]->unpack()));
    CHECK(gpu::same_bits(to_device(plain[i]->unpack_rows(7, 200), kCpu),
                         moved[i]->unpack_rows(7, 200)));
    moved.pop_back();
  }
}
