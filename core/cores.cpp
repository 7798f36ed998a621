#include "core/cores.h"

#include <omp.h>

#include <vector>

namespace frugal {

cpu_set_t usable_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) CPU_ZERO(&cores);
  for (int place = 0; place < omp_get_num_places(); ++place) {  // none where nothing is bound
    std::vector<int> ids(static_cast<size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    for (const int id : ids)
      if (id >= 0 && id < CPU_SETSIZE) CPU_SET(id, &cores);
  }
  return cores;
}

void use_all_cores() {
  if (omp_get_num_places() == 0) return;
  const cpu_set_t cores = usable_cores();
  // A thread that may not have them stays where it is.
  if (CPU_COUNT(&cores) > 0) static_cast<void>(sched_setaffinity(0, sizeof(cores), &cores));
}

}  // namespace frugal
