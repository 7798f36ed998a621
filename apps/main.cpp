#include "apps/cli/cli.h"
#include "core/spin.h"

int main(int argc, char** argv) {
  frugal::limit_spinning(argv);
  return frugal::apps::run_cli(argc, argv);
}
