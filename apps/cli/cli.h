// The command line of the `frugal` binary.
#pragma once

namespace frugal::apps {

// Runs one command and returns the exit status: 0; 1 for a failure; 2 for a mistake on the command
// line or in a configuration; 129, 130 and 143 after SIGHUP, SIGINT and SIGTERM. Errors go to
// stderr as "error: ...".
int run_cli(int argc, char** argv);

}  // namespace frugal::apps
