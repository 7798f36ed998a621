#include "core/memory/borrowed.h"

#include <doctest/doctest.h>

using namespace frugal;

TEST_CASE("a borrowed tensor shares memory that is not accounted, and lets its owner go") {
  std::vector<float> memory(24);
  auto owner = std::make_shared<int>(1);
  const std::weak_ptr<int> held = owner;
  const int64_t live = allocator(kCpu).report().live_total;
  Tensor tensor = borrow(memory.data(), {4, 3}, {6, 2}, DType::f32, kCpu, std::move(owner));
  CHECK(allocator(kCpu).report().live_total == live);
  CHECK(tensor.raw() == memory.data());
  tensor.mut<float>()[0] = 5;
  memory[6 + 2] = 7;
  CHECK(memory[0] == 5);
  CHECK(tensor.to_vector<float>() == std::vector<float>{5, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0});
  Tensor view = tensor.select(0, 1);
  tensor = {};
  CHECK_FALSE(held.expired());
  view = {};
  CHECK(held.expired());
  CHECK(allocator(kCpu).report().live_total == live);
}

TEST_CASE("memory may be borrowed twice, and the next tensor has memory of its own") {
  std::vector<int64_t> memory(8);
  const auto one = std::make_shared<int>(1), other = std::make_shared<int>(2);
  {
    const Tensor a = borrow(memory.data(), {8}, {1}, DType::i64, kCpu, one);
    const Tensor b = borrow(memory.data(), {2, 4}, {4, 1}, DType::i64, kCpu, other);
    CHECK(a.raw() == b.raw());
    CHECK(Tensor::empty({8}, DType::i64).raw() != a.raw());
    CHECK(one.use_count() == 2);
    CHECK(other.use_count() == 2);
  }
  CHECK(one.use_count() == 1);
  CHECK(other.use_count() == 1);
}

TEST_CASE("an owner may release a block itself") {
  std::vector<float> memory(4);
  auto inner = std::make_shared<Tensor>(Tensor::empty({1024}));
  const int64_t live = allocator(kCpu).report().live_total;
  Tensor tensor = borrow(memory.data(), {4}, {1}, DType::f32, kCpu, std::move(inner));
  tensor = {};
  CHECK(allocator(kCpu).report().live_total == live - 4096);
}

TEST_CASE("nothing is borrowed for tensors without elements") {
  const auto owner = std::make_shared<int>(1);
  const Tensor tensor = borrow(nullptr, {0, 3}, {3, 1}, DType::f32, kCpu, owner);
  CHECK(tensor.shape() == Shape{0, 3});
  CHECK(owner.use_count() == 1);
}

TEST_CASE("borrow refuses what it cannot share") {
  float memory[4] = {};
  const auto refused = [&](void* data, const Shape& shape, const Shape& strides, Device device,
                           const char* message) {
    CHECK_THROWS_WITH_AS(borrow(data, shape, strides, DType::f32, device, nullptr), message, Error);
  };
  refused(memory, {4}, {1}, kMeta, "[borrow] expected memory of a device, got meta");
  refused(memory, {4}, {1, 1}, kCpu, "[borrow] expected a stride for each axis of [4], got [1, 1]");
  refused(memory, {4}, {-1}, kCpu, "[borrow] expected strides of at least 0, got [-1]");
  refused(nullptr, {4}, {1}, kCpu, "[borrow] expected memory for [4], got none");
}
