// `frugal bench distributed`: its rows, and what it says where it cannot run.
#include <doctest/doctest.h>

#include <cstdlib>

#include "apps/json.h"
#include "distributed/communicator.h"
#include "tests/apps/run.h"

namespace frugal::apps {
namespace {

// What mpirun needs in containers: to run as root, with more ranks than cores, without ssh, and
// with little memory in /dev/shm.
constexpr const char* kEnvironment =
    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none "
    "OMPI_MCA_plm_rsh_agent=/bin/false OMPI_MCA_btl_vader_single_copy_mechanism=none "
    "OMPI_MCA_btl_vader_backing_directory=/tmp "
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
    "PRTE_MCA_plm_ssh_agent=/bin/false OMPI_MCA_btl_sm_backing_directory=/tmp "
    "ASAN_OPTIONS=detect_leaks=0 ";
constexpr const char* kTiny =
    "FRUGAL bench distributed --rounds 1 --steps 1 --mebibytes 1 --set data.batch_size=4 "
    "--set 'data.shape=[8,8,3]' ";

// Why nothing can be measured here; empty: it can.
std::string missing() {
  if (distributed::mpi_library().empty()) return "this build has no MPI";
  if (run_shell("command -v mpirun").status != 0) return "there is no mpirun in PATH";
  return "";
}

}  // namespace

TEST_CASE("bench distributed measures speed, sums and memory of two ranks") {
  if (const std::string why = missing(); !why.empty()) {
    MESSAGE("left out: ", why);
    return;
  }
  const Ran text = shell(std::string(kEnvironment) + kTiny);
  REQUIRE_MESSAGE(text.status == 0, text.err);
  for (const char* row :
       {"resnet20, batch 4; 1 rounds of 1 steps", "\n1 rank x 2 threads ", "\n1 rank x 1 thread ",
        "\n2 ranks x 1 thread ", "\nsum of 1.0 MiB f32 over 2 ranks", "\nCommunicator ",
        "\nMPI_Allreduce ", "\n2 ranks, measured  ", "\n8 ranks, planned  ",
        "\n64 ranks, planned "})
    CHECK_MESSAGE(text.out.find(row) != std::string::npos, row, "\n", text.out);
  CHECK_MESSAGE(longest_line(text.out) <= 80, text.out);

  const auto part = [](const std::string& name, const char* key) {
    const Ran ran = shell(std::string(kEnvironment) + kTiny + "--json --only " + name);
    REQUIRE_MESSAGE(ran.status == 0, ran.err);
    const Json json = Json::parse(ran.out);
    CHECK(json.at("ranks") == 2);
    return json.at(key);
  };
  const Json scaling = part("scaling", "scaling");
  REQUIRE(scaling.size() == 3);
  for (const Json& row : scaling) {
    CHECK(row.at("samples_per_second") > 0);
    CHECK(row.at("hidden_share").is_null() == (row.at("ranks") == 1));
  }
  CHECK(scaling.at(0).at("over_first") == 1);
  const Json memory = part("memory", "memory");
  REQUIRE(memory.size() == 6);
  for (size_t i = 0; i < memory.size(); i += 2) {
    const Json &whole = memory[i], &shared = memory[i + 1];
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

TEST_CASE("a failed run of bench distributed shows its message") {
  if (const std::string why = missing(); !why.empty()) {
    MESSAGE("left out: ", why);
    return;
  }
  const Ran ran =
      shell(std::string(kEnvironment) + kTiny + "--only memory --set data.batch_size=1");
  CHECK(ran.status == 1);
  CHECK_MESSAGE(
      ran.err.find("expected at least one sample for each of 2 ranks") != std::string::npos,
      ran.err);
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
