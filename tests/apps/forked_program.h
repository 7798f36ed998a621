// Runs command lines of the program without starting its binary. That costs a few milliseconds of
// linking at each start, which is most of what a test of a message would take.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace frugal::apps {

// The words of a command line as a shell cuts it, with quotes. None: only a shell understands it.
std::optional<std::vector<std::string>> words_of(const std::string& command);

// Runs run_cli(), all that main() of the binary calls, in another process, whose output goes to the
// two files. That process is a copy of this one as it was before the first test, so nothing that a
// test did is seen there; it may have run earlier commands. Its environment and folder are those of
// now. Returns the exit status; where a signal ended the process, the number of the signal plus
// 128. In that process /proc/self/exe is not the binary, so commands that start the program again
// must start the binary. So must cases about the first or last moments of a process.
int run_forked(const std::vector<std::string>& words, const std::string& out,
               const std::string& err);

}  // namespace frugal::apps
