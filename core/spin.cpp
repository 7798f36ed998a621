#include "core/spin.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace frugal {

void limit_spinning(char** argv) {
  if (std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  // The resolved path, so that the restarted process has the program's name and not "exe".
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return;
  if (setenv("GOMP_SPINCOUNT", std::to_string(kSpinCount).c_str(), 0) != 0) return;
  execv(program.c_str(), argv);  // returns only where it failed; then threads wait as they did
}

}  // namespace frugal
