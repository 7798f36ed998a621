// The main function of all tests. The environment variable FRUGAL_HWY_TARGETS names the best
// instruction set that our vector code may use: AVX3, AVX2, SSE4 or EMU128. (oneDNN has its own
// variable, ONEDNN_MAX_CPU_ISA.)
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <hwy/targets.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

// Better targets have lower bits.
bool limit_targets(const std::string& best) {
  for (int bit = 0; bit < 63; ++bit) {
    const int64_t target = int64_t{1} << bit;
    if (best != hwy::TargetName(target)) continue;
    hwy::DisableTargets(target - 1);
    return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const best = std::getenv("FRUGAL_HWY_TARGETS");
  if (best != nullptr && !limit_targets(best)) {
    std::fprintf(stderr,
                 "FRUGAL_HWY_TARGETS: expected AVX3, AVX2, SSE4, EMU128 or another target of "
                 "Highway, got '%s'\n",
                 best);
    return 2;
  }
  // Tests send signals to what they start, which inherits that nohup or a shell ignores them.
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_DFL);
  doctest::Context context(argc, argv);
  return context.run();
}
