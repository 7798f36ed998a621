// `frugal bench distributed`: its rows, and what it says where it cannot run.
#include <doctest/doctest.h>

#include "apps/json.h"
#include "tests/apps/mpirun.h"

namespace frugal::apps {
namespace {

constexpr const char* kTiny =
    "FRUGAL bench distributed --rounds 1 --steps 1 --mebibytes 1 --set data.batch_size=4 "
    "--set 'data.shape=[8,8,3]' ";

}  // namespace

TEST_CASE("bench distributed measures speed, sums and memory of two ranks" *
          doctest::skip(!why_no_mpirun().empty())) {
  const Ran text = shell(std::string(kMpiEnvironment) + kTiny);
  REQUIRE_MESSAGE(text.status == 0, text.err);
  for (const char* row :
       {"resnet20, batch 4; 1 rounds of 1 steps", "\n1 rank x 2 threads ", "\n1 rank x 1 thread ",
        "\n2 ranks x 1 thread ", "\nsum of 1.0 MiB f32 over 2 ranks", "\nCommunicator ",
        "\nMPI_Allreduce ", "\n2 ranks, measured  ", "\n8 ranks, planned  ",
        "\n64 ranks, planned "})
    CHECK_MESSAGE(text.out.find(row) != std::string::npos, row, "\n", text.out);
  CHECK_MESSAGE(longest_line(text.out) <= 80, text.out);

  const Ran ran = shell(std::string(kMpiEnvironment) + kTiny + "--json");
  REQUIRE_MESSAGE(ran.status == 0, ran.err);
  const Json json = Json::parse(ran.out);
  CHECK(json.at("ranks") == 2);
  const Json &scaling = json.at("scaling"), &memory = json.at("memory");
  REQUIRE(scaling.size() == 3);
  for (const Json& row : scaling) {
    CHECK(row.at("samples_per_second") > 0);
    CHECK(row.at("hidden_share").is_null() == (row.at("ranks") == 1));
  }
  CHECK(scaling.at(0).at("over_first") == 1);
  REQUIRE(memory.size() == 9);
  for (size_t i = 0; i < memory.size(); i += 3) {
    const Json &whole = memory[i], &shared = memory[i + 1], &both = memory[i + 2];
    CHECK(both.at("sharding") == "gradients");
    CHECK(both.at("optimizer_bytes") == shared.at("optimizer_bytes"));
    CHECK(whole.at("sharding") == "none");
    CHECK(shared.at("sharding") == "optimizer");
    CHECK(whole.at("measured") == (i == 0));
    CHECK(whole.at("optimizer_bytes") == memory[0].at("optimizer_bytes"));
    const double ranks = whole.at("ranks"), all = whole.at("optimizer_bytes"),
                 share = shared.at("optimizer_bytes");
    CHECK(ranks * share / all == doctest::Approx(1).epsilon(0.03));
    CHECK(shared.at("peak_bytes") < whole.at("peak_bytes"));
  }
}

TEST_CASE("a failed run of bench distributed shows its message" *
          doctest::skip(!why_no_mpirun().empty())) {
  const Ran ran =
      shell(std::string(kMpiEnvironment) + kTiny + "--only memory --set memory_limit=100000");
  CHECK(ran.status == 1);
  CHECK_MESSAGE(ran.err.find("memory_limit") != std::string::npos, ran.err);
  CHECK_MESSAGE(ran.err.find("OMPI_ALLOW_RUN_AS_ROOT=1") != std::string::npos, ran.err);
}

TEST_CASE("bench distributed says what it lacks") {
  const Ran alone = shell(std::string("env PATH=/nonexistent ") + kTiny);
  CHECK(alone.status == 1);
  CHECK_MESSAGE(alone.err.find(distributed::mpi_library().empty()
                                   ? "expected a program that was built with MPI"
                                   : "expected mpirun in PATH, got none") != std::string::npos,
                alone.err);
  const Ran rank = shell(std::string("env PMI_SIZE=2 PMI_RANK=0 ") + kTiny);
  CHECK(rank.status == 2);
  CHECK_MESSAGE(rank.err.find("or --only all-reduce; got one of 2 (PMI_SIZE)") != std::string::npos,
                rank.err);
  CHECK(frugal("bench distributed --ranks 1").status == 2);
  CHECK(frugal("bench distributed --workload gcn").status == 2);
  CHECK(frugal("bench distributed --set data.batchsize=4").status == 2);
}

}  // namespace frugal::apps
