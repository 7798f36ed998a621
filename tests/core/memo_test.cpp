#include "core/memo.h"

#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "core/tensor_identity.h"

using namespace frugal;

TEST_CASE("the entry least recently used goes first") {
  Memo<std::string, std::unique_ptr<int>> memo(2);
  CHECK(memo.find("a") == nullptr);
  memo.put("a", std::make_unique<int>(1));
  CHECK(*memo.put("b", std::make_unique<int>(2)) == 2);
  REQUIRE(memo.find("a") != nullptr);
  memo.put("c", std::make_unique<int>(3));
  CHECK(memo.size() == 2);
  CHECK(memo.find("b") == nullptr);
  CHECK(**memo.find("a") == 1);
  CHECK(**memo.find("c") == 3);
}

TEST_CASE("a value that is put again is replaced, and counts as used") {
  Memo<int, int> memo(2);
  memo.put(1, 10);
  memo.put(2, 20);
  memo.put(1, 11);
  memo.put(3, 30);
  CHECK(*memo.find(1) == 11);
  CHECK(memo.find(2) == nullptr);
  CHECK_THROWS_AS((Memo<int, int>(0)), InternalError);
}

TEST_CASE("a value is made once while it is remembered") {
  Memo<int, int> memo(2);
  int made = 0;
  const auto ask = [&](int key) {
    return memo.find_or_make(key, [&] { return 10 * key + made++; });
  };
  CHECK(ask(1) == 10);
  CHECK(ask(2) == 21);
  CHECK(ask(1) == 10);
  CHECK(ask(3) == 32);  // takes the place of 2
  CHECK(ask(1) == 10);
  CHECK(ask(2) == 23);
  CHECK_THROWS(memo.find_or_make(7, []() -> int { throw std::runtime_error("none"); }));
  CHECK(memo.size() == 2);
  CHECK(*memo.find(1) == 10);
}

TEST_CASE("entries that are forgotten leave room") {
  Memo<int, int> memo(3);
  for (const int key : {1, 2, 3}) memo.put(key, key);
  memo.forget_if([](int key, int value) { return key == 2 || value == 3; });
  CHECK(memo.size() == 1);
  CHECK(memo.find(2) == nullptr);
  memo.put(4, 4);
  memo.put(5, 5);
  CHECK(memo.size() == 3);
  memo.put(6, 6);
  CHECK(memo.find(1) == nullptr);
  CHECK(*memo.find(6) == 6);
}

TEST_CASE("a tensor's identity changes with its values, and says when its memory has gone") {
  const auto equal = [](const TensorIdentity& a, const TensorIdentity& b) {
    return !(a < b) && !(b < a);
  };
  Tensor x = Tensor::zeros({4, 6}), other = Tensor::zeros({4, 6});
  const TensorIdentity first(x);
  CHECK(equal(first, TensorIdentity(x)));
  CHECK(!equal(first, TensorIdentity(other)));
  CHECK(!equal(first, TensorIdentity(x.slice(0, 0, 2))));
  CHECK(!equal(TensorIdentity(x.slice(0, 0, 2)), TensorIdentity(x.slice(0, 2, 4))));
  CHECK(!equal(first, TensorIdentity(x.view({6, 4}))));
  const Tensor square = Tensor::zeros({4, 4});
  CHECK(!equal(TensorIdentity(square), TensorIdentity(square.transpose(0, 1))));
  CHECK(equal(TensorIdentity(Tensor()), TensorIdentity()));
  CHECK(!equal(first, TensorIdentity()));
  CHECK(!TensorIdentity().is_gone());
  x.bump_version();
  const TensorIdentity second(x);
  CHECK(!equal(first, second));
  CHECK(!second.is_gone());
  x = {};
  CHECK(second.is_gone());
  CHECK(equal(second, TensorIdentity(second)));
}

TEST_CASE("what was made of a tensor is forgotten once nobody holds the tensor") {
  using Key = std::tuple<TensorIdentity, int>;
  Memo<Key, int> memo(4);
  int made = 0;
  const auto ask = [&](const Tensor& x, int other) {
    forget_gone(memo);
    return memo.find_or_make({TensorIdentity(x), other}, [&] { return ++made; });
  };
  const Tensor held = Tensor::zeros({3});
  CHECK(ask(held, 0) == 1);
  CHECK(ask(held, 1) == 2);
  CHECK(ask(Tensor::zeros({3}), 0) == 3);
  CHECK(memo.size() == 3);
  CHECK(ask(held, 0) == 1);
  CHECK(memo.size() == 2);
}
