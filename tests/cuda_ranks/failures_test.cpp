// What goes wrong on purpose. failures_test.sh runs each case on two ranks and looks at the exit
// status and at what is printed; a plain run of the tests leaves these cases out.
#include <unistd.h>

#include "tests/cuda_ranks/cuda_ranks.h"

namespace frugal::distributed {

TEST_CASE("failure: a rank does not come" * doctest::skip()) {
  const CommunicatorPtr all = from_environment({.timeout = 1});
  const Tensor x = on_gpu(Tensor::ones({1000}));
  all->all_reduce(x);
  if (all->rank() == 1) sleep(60);
  all->all_reduce(x, Reduction::sum, "the weights");
  on_host(x);
  sleep(60);
  FAIL("the job goes on");
}

TEST_CASE("failure: an operation never ends" * doctest::skip()) {
  const CommunicatorPtr all = from_environment({.timeout = 1});
  const Tensor x = on_gpu(Tensor::ones({1000}));
  for (const char* what : {"the first", "the second", "the third"})
    all->all_reduce(x, Reduction::sum, what);
  on_host(x);
  FAIL("the job goes on");
}

TEST_CASE("failure: ranks do different things" * doctest::skip()) {
  const Tensor x = on_gpu(Tensor::ones({1000}));
  if (ranks().rank() == 1)
    ranks().broadcast(x, 0, "the buffers");
  else
    ranks().all_reduce(x, Reduction::sum, "the gradients");
  on_host(x);
  FAIL("the job goes on");
}

TEST_CASE("failure: channels in different orders" * doctest::skip()) {
  const CommunicatorPtr other = ranks().channel();
  const Tensor x = on_gpu(Tensor::ones({1000})), y = on_gpu(Tensor::ones({1000}));
  if (ranks().rank() == 1) {
    ranks().all_reduce(x, Reduction::sum, "a number");
    other->all_reduce(y, Reduction::sum, "a number");
  } else {
    other->all_reduce(y, Reduction::sum, "a number");
    ranks().all_reduce(x, Reduction::sum, "a number");
  }
  on_host(x);
  sleep(60);
  FAIL("the job goes on");
}

TEST_CASE("failure: a rank sends what another one does not expect" * doctest::skip()) {
  // Rank 0 has 300 bytes for rank 1, which expects none.
  const int64_t out = ranks().rank() == 0 ? 300 : 0;
  const Bounds sent = ranks().rank() == 0 ? Bounds{0, 0, out} : Bounds{0, out, out};
  const Tensor nothing = Tensor::empty({0}, DType::u8, gpu());
  ranks().all_to_all(Tensor::zeros({out}, DType::u8, gpu()), sent, nothing, {0, 0, 0}, "the codes");
  sleep(60);
  FAIL("the job goes on");
}

TEST_CASE("failure: a rank fails" * doctest::skip()) {
  const Tensor x = on_gpu(Tensor::ones({1000}));
  ranks().all_reduce(x);
  if (ranks().rank() == 1) throw Error("a damaged file");
  ranks().all_reduce(x);
  on_host(x);
  FAIL("the job goes on");
}

}  // namespace frugal::distributed
