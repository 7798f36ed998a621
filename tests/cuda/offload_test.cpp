// Payloads that leave the device for pinned host memory, and come back.
#include "compress/offload/offload.h"

#include "compress/policies/offload_policy.h"
#include "ops/dense/copy.h"
#include "ops/dense/elementwise.h"
#include "ops/dense/matmul.h"
#include "ops/dense/reduce.h"
#include "tests/compress/offload/offload_samples.h"
#include "tests/cuda/packing.h"

namespace frugal::compress {
namespace {

Tensor payload_there(int64_t bytes, uint64_t seed) {
  const CategoryScope scope(Category::packed);
  return to_device(payload(bytes, seed), gpu::kCuda);
}

}  // namespace

TEST_CASE("payloads on CUDA come back from pinned memory, within the window") {
  if (!gpu::available()) return;
  const TempFolder folder;
  const int64_t before = gpu::live(Category::packed), window = 10000;
  {
    OffloadOptions options;
    options.directory = folder.path();
    options.window = window;
    PayloadStore store(options);
    CHECK(store.host() == nullptr);
    std::vector<PayloadStore::Id> ids;
    std::vector<int64_t> sizes = {4000, 100, 0, 3000, 5000, 7777, 12000, 64, 2500};
    for (size_t i = 0; i < sizes.size(); ++i) {
      ids.push_back(store.put(payload_there(sizes[i], i)));
      CHECK(gpu::live(Category::packed) - before <=
            std::max<int64_t>(window, (sizes[i] + 63) / 64 * 64));
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
  CHECK(gpu::live(Category::packed) == before);
}

TEST_CASE(
    "large payloads wait for the slow kernels that make them, and are read before memory is "
    "reused") {
  if (!gpu::available()) return;
  const gpu::LateStreams late;
  const int64_t bytes = gpu::emulated() ? 1 << 16 : 64 << 20, side = gpu::emulated() ? 8 : 4096;
  const TempFolder folder;
  OffloadOptions options;
  options.directory = folder.path();
  options.window = bytes;
  PayloadStore store(options);
  const Tensor a =
      Tensor::full({side, side}, 1.0 / static_cast<double>(side), DType::f32, gpu::kCuda);
  std::vector<PayloadStore::Id> ids;
  for (int i = 0; i < 4; ++i) {
    // A copy that does not wait for the kernels comes too early behind a stall, and a kernel that
    // does not wait for the copy comes too early without one.
    if (gpu::emulated() && i % 2 == 0) emulator::stall(5);
    Tensor slow = a;
    for (int product = 0; product < 8; ++product) slow = ops::matmul(slow, a);
    // All elements of `slow` are 1 / side, so the payload is i + 1, but only behind the products.
    const Tensor one =
        ops::affine(slow.view({side * side}).slice(0, 0, 1), static_cast<double>(side), i);
    const CategoryScope scope(Category::packed);
    ids.push_back(store.put(ops::contiguous(ops::expand(one, {bytes / 4}))));
    // Takes the memory that a payload left, if that may be used again.
    Tensor::full({bytes / 4}, -1, DType::f32, gpu::kCuda);
  }
  for (size_t i = ids.size(); i-- > 0;) {
    if (i > 0) store.prefetch(ids[i - 1]);
    // A kernel reads it, and the host what that made.
    const std::vector<double> back = ops::affine(store.pin(ids[i]), 1, 0).to_vector();
    CHECK(std::all_of(back.begin(), back.end(),
                      [&](double x) { return std::abs(x - static_cast<double>(i + 1)) < 1e-3; }));
    store.unpin(ids[i]);
    store.drop(ids[i]);
  }
}

TEST_CASE("a payload on CUDA that was written in place is an error") {
  if (!gpu::available()) return;
  const TempFolder folder;
  OffloadOptions options;
  options.directory = folder.path();
  options.window = 0;
  PayloadStore store(options);
  const Tensor mine = payload_there(64, 1);
  const auto id = store.put(mine), next = store.put(payload_there(64, 2));
  CHECK(gpu::same_bits(payload(64, 1), store.pin(id)));  // it left unchanged
  store.unpin(id);
  const Tensor changed = payload_there(64, 3);
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

}  // namespace frugal::compress
