#include "apps/cli/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "apps/cli/signals.h"
#include "core/cores.h"
#include "core/error.h"

namespace frugal::apps {

std::string this_program() {
  std::error_code failed;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (failed) throw Error("cannot read /proc/self/exe, which names this program");
  return path.string();
}

pid_t start_child(const std::vector<std::string>& words, const std::string& out,
                  const std::string& err) {
  std::vector<std::string> copies = words;
  std::vector<char*> argv;
  for (std::string& word : copies) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Until it runs the other program, the child has the handlers of this one. They would take a
  // signal that is to end the child, and forget it. So signals wait until the child has none.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t parent = getpid(), id = fork();
  if (id != 0) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (id < 0) throw Error("cannot start a process");
    return id;
  }
  forget_handlers();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(open(out.c_str(), kNew, 0644), STDOUT_FILENO);
  dup2(open(err.c_str(), kNew, 0644), STDERR_FILENO);
  use_all_cores();
  execvp(argv.front(), argv.data());
  _exit(127);
}

ChildResult run_child(const std::vector<std::string>& words, const std::string& folder,
                      const std::string& where) {
  const std::string out = folder + "/out", err = folder + "/err";
  const pid_t id = start_child(words, out, err);
  ChildResult result;
  bool told = false;
  while (waitpid(id, &result.status, WNOHANG) == 0) {
    if (signal_received() != 0 && !told) kill(id, SIGTERM);
    told = signal_received() != 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (signal_received() != 0) throw Interrupted(signal_received(), where);
  result.out = file_text(out);
  result.err = file_text(err);
  // Messages of mpirun may hold zero bytes, which would end the message that quotes them.
  std::erase(result.err, '\0');
  return result;
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string last_line(const std::string& text) {
  std::istringstream lines(text);
  std::string last;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) last = line;
  return last;
}

std::string status_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("signal {}", WTERMSIG(status));
  return fmt::format("status {}", WEXITSTATUS(status));
}

}  // namespace frugal::apps
