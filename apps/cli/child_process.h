// Programs that this one starts, and what they print.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

namespace frugal::apps {

// The path of this program.  Errors: the system does not tell it.
std::string this_program();

// Starts a program. words: its path, or its name in PATH, and its arguments. `out` and `err` are
// files that get what it prints; it reads nothing. It ends by SIGTERM when this process dies. It is
// in a process group of its own: Ctrl-C reaches this process alone, which tells its children.
// Errors: no process can be started. A program that is not there ends with status 127.
pid_t start_child(const std::vector<std::string>& words, const std::string& out,
                  const std::string& err);

struct ChildResult {
  int status = 0;  // as waitpid() gives it; 0: all went well
  std::string out, err;
};
// Starts a program and waits for its end. Files of what it prints are made in `folder`.
// Errors: Interrupted, after the child has ended by SIGTERM, saying `where`.
ChildResult run_child(const std::vector<std::string>& words, const std::string& folder,
                      const std::string& where);

std::string file_text(const std::string& path);  // empty: there is no such file
std::string last_line(const std::string& text);  // the last line that is not empty
std::string status_text(int status);             // "status 3" or "signal 9"

}  // namespace frugal::apps
