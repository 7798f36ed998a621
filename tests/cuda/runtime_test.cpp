// Memory, transfers, recorded work.
#include "core/cuda_graph.h"
#include "core/rng.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "tests/cuda/gpu.h"

using namespace frugal;

TEST_CASE("tensors move to the GPU and back, every dtype") {
  if (!gpu::available()) return;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16, DType::i64, DType::i32, DType::u8,
                      DType::bool_, DType::f64}) {
    const Tensor x = ops::cast(Tensor::from<float>({0, 1, 2, 3, 100, 1}, {2, 3}), dtype);
    const Tensor there = to_device(x, gpu::kCuda);
    CHECK(there.device() == gpu::kCuda);
    CHECK(there.to_vector() == x.to_vector());
    CHECK(there.item(4) == x.item(4));
    CHECK(to_device(there, kCpu).to_vector() == x.to_vector());
  }
  CHECK(Tensor::zeros({3}, DType::i32, gpu::kCuda).to_vector() == std::vector<double>{0, 0, 0});
  CHECK(Tensor::full({2}, 1.5, DType::f32, gpu::kCuda).to_vector() ==
        std::vector<double>{1.5, 1.5});
  CHECK_THROWS_AS(to_device(Tensor::zeros({2, 3}).transpose(0, 1), gpu::kCuda), Error);
  CHECK_THROWS_WITH_AS(Tensor::zeros({1}, DType::f32, {DeviceType::cuda, 99}),
                       doctest::Contains("cuda:99"), Error);
}

TEST_CASE("strided copies and casts on the GPU") {
  if (!gpu::available()) return;
  Tensor x = Tensor::empty({3, 4, 5});
  for (int64_t i = 0; i < x.numel(); ++i) x.mut<float>()[i] = static_cast<float>(i) - 20.5F;
  const Tensor there = to_device(x, gpu::kCuda);
  const auto view = [](const Tensor& t) { return t.permute({2, 0, 1}).slice(0, 1, 4); };
  CHECK(ops::clone(view(there)).to_vector() == ops::clone(view(x)).to_vector());
  for (DType dtype : {DType::bf16, DType::i64, DType::bool_, DType::f64})
    CHECK(ops::cast(view(there), dtype).to_vector() == ops::cast(view(x), dtype).to_vector());
  const Tensor filled = Tensor::zeros({3, 4}, DType::f32, gpu::kCuda);
  ops::fill(filled.select(1, 2), 7);
  CHECK(filled.to_vector() == std::vector<double>{0, 0, 7, 0, 0, 0, 7, 0, 0, 0, 7, 0});
}

TEST_CASE("memory on the GPU is accounted, limited, and given back") {
  if (!gpu::available()) return;
  Allocator& memory = allocator(gpu::kCuda);
  const MemoryReport before = memory.report();
  {
    const CategoryScope scope(Category::packed);
    const Tensor x = Tensor::empty({1000}, DType::f32, gpu::kCuda);
    CHECK(memory.report().of(Category::packed) == before.of(Category::packed) + 4032);
    CHECK(memory.report().reserved >= memory.report().live_total);
  }
  CHECK(memory.report().live_total == before.live_total);
  memory.set_limit(before.live_total + (1 << 20));
  CHECK_THROWS_AS(Tensor::empty({1 << 20}, DType::f32, gpu::kCuda), OutOfMemory);
  memory.set_limit(0);
  memory.trim();
  CHECK_THROWS_WITH_AS(Tensor::empty({int64_t{1} << 50}, DType::u8, gpu::kCuda),
                       doctest::Contains("packed"), OutOfMemory);
}

TEST_CASE("recorded work runs again on new inputs") {
  if (!gpu::available()) return;
  const Tensor x = to_device(Tensor::from<float>({1, 2, 3}, {3}), gpu::kCuda);
  Tensor y;
  cuda::Graph graph;
  CHECK_FALSE(graph.captured());
  const auto work = [&] {
    const Tensor twice = ops::affine(x, 2, 0);
    y = ops::add(twice, ops::affine(twice, 0, 1));
  };
  work();  // what is made once is made before
  graph.capture(work);
  CHECK(graph.captured());
  graph.replay();
  CHECK(y.to_vector() == std::vector<double>{3, 5, 7});
  ops::copy_into(x, to_device(Tensor::from<float>({10, 20, 30}, {3}), gpu::kCuda));
  // What others allocate meanwhile does not lie where the graph works.
  const Tensor other = Tensor::full({3}, 5, DType::f32, gpu::kCuda);
  graph.replay();
  CHECK(y.to_vector() == std::vector<double>{21, 41, 61});
  CHECK(other.to_vector() == std::vector<double>{5, 5, 5});
}

TEST_CASE("recorded work keeps its memory where all others' is given back") {
  if (!gpu::available()) return;
  constexpr int64_t kMany = 9 << 18;  // a segment for each
  const Tensor x = Tensor::full({kMany}, 2, DType::f32, gpu::kCuda);
  Tensor y;
  const auto work = [&] {
    const Tensor a = ops::affine(x, 2, 0), b = ops::affine(a, 3, 1);
    y = ops::affine(b, 1, 5).slice(0, 0, 2);
  };
  work();
  cuda::Graph graph;
  graph.capture(work);
  allocator(gpu::kCuda).trim();
  graph.replay();
  CHECK(ops::contiguous(y).to_vector() == std::vector<double>{18, 18});
}

TEST_CASE("an exception while recording leaves no graph, and the GPU usable") {
  if (!gpu::available()) return;
  cuda::Graph graph;
  const Tensor x = Tensor::full({3}, 1, DType::f32, gpu::kCuda);
  CHECK_THROWS_WITH_AS(graph.capture([&] {
    ops::affine(x, 2, 0);
    throw Error("no further");
  }),
                       "no further", Error);
  CHECK_FALSE(graph.captured());
  CHECK_THROWS_AS(graph.capture([&] { x.item(); }), Error);  // waits for the device
  CHECK(ops::affine(x, 2, 0).to_vector() == std::vector<double>{2, 2, 2});
}
