// Runs the real binary on several ranks.
#pragma once
#include <string>

#include "distributed/communicator.h"
#include "tests/apps/run.h"

namespace frugal::apps {

// What mpirun needs in containers: to run as root, with more ranks than cores, without ssh, and
// with little memory in /dev/shm.
inline constexpr const char* kMpiEnvironment =
    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
    "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none "
    "OMPI_MCA_plm_rsh_agent=/bin/false OMPI_MCA_btl_vader_single_copy_mechanism=none "
    "OMPI_MCA_btl_vader_backing_directory=/tmp "
    "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe "
    "PRTE_MCA_plm_ssh_agent=/bin/false OMPI_MCA_btl_sm_backing_directory=/tmp ";

// Why no ranks can be started here; empty: they can.
inline std::string why_no_mpirun() {
  if (distributed::mpi_library().empty()) return "this build has no MPI";
  if (!has_program("mpirun")) return "there is no mpirun in PATH";
  return "";
}

}  // namespace frugal::apps
