// What goes wrong on purpose. failures_test.sh runs each case on two ranks and looks at the exit
// status and at what is printed; a plain run of the tests leaves these cases out.
#include <signal.h>
#include <unistd.h>

#include "distributed/reduce_in_backward.h"
#include "tests/distributed/ranks.h"

namespace frugal::distributed {

TEST_CASE("failure: one rank aborts" * doctest::skip()) {
  if (ranks().rank() == 1) ranks().abort("the disk is full");
  ranks().barrier();
  FAIL("the job goes on");
}

TEST_CASE("failure: one rank does not come" * doctest::skip()) {
  ranks();
  const CommunicatorPtr all = from_environment({.timeout = 1});
  if (all->rank() == 1) sleep(60);
  all->all_reduce(Tensor::ones({1000}), Reduction::sum, "the weights");
  FAIL("the job goes on");
}

TEST_CASE("end: all ranks agree" * doctest::skip()) {
  if (ranks().rank() == 0) {
    sleep(1);  // longer than MPI takes to end the job after the exit of rank 1
    std::fprintf(stderr, "the last words of rank 0\n");
  }
  end_together();
  std::exit(3);
}

TEST_CASE("failure: one rank is killed" * doctest::skip()) {
  if (ranks().rank() == 1) kill(getpid(), SIGKILL);
  ranks().barrier();
  FAIL("the job goes on");
}

TEST_CASE("failure: one rank fails" * doctest::skip()) {
  if (ranks().rank() == 1) throw Error("a damaged file");
  ranks().barrier();
  FAIL("the job goes on");
}

TEST_CASE("failure: ranks do different things" * doctest::skip()) {
  const Tensor x = Tensor::ones({1000});
  if (ranks().rank() == 1)
    ranks().broadcast(x, 0, "the buffers");
  else
    ranks().all_reduce(x, Reduction::sum, "the gradients");
  ranks().barrier();
  FAIL("the job goes on");
}

TEST_CASE("failure: ranks cut a tensor into different shares" * doctest::skip()) {
  const int64_t mine = ranks().rank() == 0 ? 400 : 600;
  ranks().all_gather(Tensor::ones({1000}), Bounds{0, mine, 1000}, "the weights");
  ranks().barrier();
  FAIL("the job goes on");
}

TEST_CASE("failure: a rank sends what another one does not expect" * doctest::skip()) {
  // Rank 0 has 300 bytes for rank 1, which expects none.
  const int64_t out = ranks().rank() == 0 ? 300 : 0;
  const Bounds sent = ranks().rank() == 0 ? Bounds{0, 0, out} : Bounds{0, out, out};
  const Tensor nothing = Tensor::empty({0}, DType::u8);
  ranks().all_to_all(Tensor::zeros({out}, DType::u8), sent, nothing, {0, 0, 0}, "the codes");
  ranks().barrier();
  FAIL("the job goes on");
}

namespace {

// Tells of leaves as a backward pass does.
void reduce_leaves(const std::vector<std::string>& order) {
  NamedVariables parameters;
  for (const char* name : {"first", "second"})
    parameters.emplace_back(name, Variable::parameter(Tensor::ones({100})));
  ReduceInBackward reduce(from_environment({.timeout = 60}), parameters, [](GradAccumulator&) {});
  const LeafFn leaf_done = reduce.leaf_done();
  for (const std::string& leaf : order)
    for (auto& [name, parameter] : parameters)
      if (name == leaf) {
        parameter.set_grad(Tensor::ones({100}));
        leaf_done(*parameter.accumulator());
      }
  reduce.finish();
  ranks().barrier();
  FAIL("the job goes on");
}

}  // namespace

TEST_CASE("failure: gradients come in another order" * doctest::skip()) {
  ranks().rank() == 0 ? reduce_leaves({"first", "second"}) : reduce_leaves({"second", "first"});
}

TEST_CASE("failure: a rank has fewer gradients" * doctest::skip()) {
  ranks().rank() == 0 ? reduce_leaves({"first", "second"}) : reduce_leaves({"first"});
}

}  // namespace frugal::distributed
