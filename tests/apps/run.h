// Runs the program, and folders that vanish.
#pragma once
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <spdlog/fmt/fmt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <thread>

#include "ops/onednn_instructions.h"
#include "tests/apps/forked_program.h"

namespace frugal::apps {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "frugal_apps_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Whether `part` is in `text`; each says so where it is false.
inline bool has(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (!found) MESSAGE("'", part, "' is not in: ", text);
  return found;
}
inline bool lacks(const std::string& text, const std::string& part) {
  const bool found = text.find(part) != std::string::npos;
  if (found) MESSAGE("'", part, "' is in: ", text);
  return !found;
}

// How often `text` has `part`.
inline int64_t count_of(const std::string& text, const std::string& part) {
  int64_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

// The lines of a metrics.jsonl without those of type "memory", which depend on the number of
// threads and workers.
inline std::string results_in(const std::string& path) {
  std::stringstream lines(read_file(path));
  std::string results;
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"type\":\"memory\"") == std::string::npos) results += line + "\n";
  return results;
}

// Lines of messages and tables fit a terminal, except for paths.
inline size_t longest_line(const std::string& text) {
  std::stringstream lines(text);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

struct Ran {
  int status = 0;
  std::string out, err;
};

// What commands see of this process's environment.
inline void clean_environment() {
  unsetenv("FRUGAL_DATA");  // a test's data are its own
  setenv("HOME", "/nonexistent", 1);
}

// A shell command line.
inline Ran run_shell(const std::string& command) {
  const TempFolder folder;
  clean_environment();
  const int status = std::system(
      fmt::format("{{ {}; }} >{} 2>{}", command, folder / "out", folder / "err").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"),
          read_file(folder / "err")};
}

// run_shell() of a command in which FRUGAL stands for the binary.
inline Ran shell(std::string command) {
  const size_t at = command.find("FRUGAL");
  if (at != std::string::npos) command.replace(at, 6, FRUGAL_BINARY);
  return run_shell(command);
}

// Starts the binary. For tests of the process itself, and of commands that start it again.
inline Ran binary(const std::string& arguments) { return shell("FRUGAL " + arguments); }

// What the binary does with these arguments, in a process that is there already.
inline Ran frugal(const std::string& arguments) {
  const auto words = words_of("frugal " + arguments);
  // Arguments may redirect something or have variables. The two commands start their program again.
  // With FRUGAL_HWY_TARGETS this program has other kernels than the binary, with whose runs the
  // test may compare this one.
  if (!words || arguments.starts_with("reproduce") || arguments.starts_with("bench distributed") ||
      std::getenv("FRUGAL_HWY_TARGETS") != nullptr)
    return binary(arguments);
  const TempFolder folder;
  clean_environment();
  const int status = run_forked(*words, folder / "out", folder / "err");
  return {status, read_file(folder / "out"), read_file(folder / "err")};
}

// The command ended with this status and an error that has these words, in a few lines without
// control characters.
inline void check_fails(const Ran& ran, int status, std::initializer_list<std::string> words) {
  CHECK(ran.status == status);
  CHECK_MESSAGE(ran.err.find("error: ") != std::string::npos, ran.err);
  for (const std::string& word : words)
    CHECK_MESSAGE(ran.err.find(word) != std::string::npos, word, ran.err);
  CHECK(ran.err.find('\x1b') == std::string::npos);
  CHECK(ran.err.size() < 4000);
}

// Is there such a program in PATH? For cases that are skipped without it.
inline bool has_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (access((folder + "/" + name).c_str(), X_OK) == 0) return true;
  return false;
}

inline Ran frugal_lab(const std::string& arguments) {
  return run_shell(FRUGAL_LAB_BINARY " " + arguments);
}

// Starts the binary in the background. It prints nowhere.
inline pid_t start(const std::string& arguments) {
  const std::string command = "exec " FRUGAL_BINARY " " + arguments;
  const pid_t child = fork();
  if (child != 0) return child;
  const int nowhere = open("/dev/null", O_WRONLY);  // not freopen: that would flush our own output
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  unsetenv("FRUGAL_DATA");
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(99);
}

// The exit status, or 128 and the number of the signal that ended the process.
inline int wait_for(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Trains with `arguments` into `out` until `file`, relative to `out`, has more than `bytes`, and
// sends `signal`. Returns the exit status. On a busy machine the run may end before the signal
// comes: then `out` is put back as it was, and the run begins again.
inline int cut_run(const std::string& arguments, const std::string& out, const std::string& file,
                   uintmax_t bytes, int signal) {
  namespace fs = std::filesystem;
  const TempFolder before;
  if (fs::exists(out)) fs::copy(out, before / "out", fs::copy_options::recursive);
  int status = 0;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const pid_t child = start(arguments + " --out " + out);
    siginfo_t ended = {};
    while (waitid(P_PID, child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0) {
      std::error_code none;
      const uintmax_t size = fs::file_size(out + "/" + file, none);
      if (!none && size > bytes) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    kill(child, signal);
    status = wait_for(child);
    if (status != 0) break;
    fs::remove_all(out);
    if (fs::exists(before / "out")) fs::copy(before / "out", out, fs::copy_options::recursive);
  }
  return status;
}

// A run of milliseconds that uses every part: dropout, augmentation, momentum, compression.
// Have products of matrices the same bits on any number of threads? Where oneDNN has no kernels for
// AVX-512, it may share the sum of a product among threads.
inline bool products_ignore_threads() {
#ifdef __x86_64__
  return ops::onednn::uses_avx512();
#else
  return true;
#endif
}

inline const char* kTinyConfig = R"({
  "model": {"name": "mlp", "hidden": [64, 32], "dropout": 0.2},
  "data": {"name": "random", "shape": [6, 6, 1], "classes": 3, "batch_size": 32,
           "test_batch_size": 64, "train_samples": 1280, "test_samples": 64,
           "flip": true, "crop_padding": 1},
  "optim": {"lr": 0.05, "nesterov": true, "clip_norm": 5},
  "compression": {"level": "L1", "advanced": {"min_elements": 96}},
  "train": {"epochs": 2, "log_interval": 3, "checkpoint_interval": 4},
  "threads": 1
})";

}  // namespace frugal::apps
