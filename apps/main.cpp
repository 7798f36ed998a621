#include "apps/cli.h"

int main(int argc, char** argv) { return frugal::apps::run_cli(argc, argv); }
