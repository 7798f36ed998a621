// Runs the real binary, and folders that vanish.
#pragma once
#include <spdlog/fmt/fmt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

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

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_file(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

struct Ran {
  int status = 0;
  std::string out, err;
};

// A shell command line.
inline Ran run_shell(const std::string& command) {
  const TempFolder folder;
  unsetenv("FRUGAL_DATA");  // a test's data are its own
  setenv("HOME", "/nonexistent", 1);
  const int status = std::system(
      fmt::format("{{ {}; }} >{} 2>{}", command, folder / "out", folder / "err").c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder / "out"),
          read_file(folder / "err")};
}

// The same, in which FRUGAL stands for the binary.
inline Ran shell(std::string command) {
  const size_t at = command.find("FRUGAL");
  if (at != std::string::npos) command.replace(at, 6, FRUGAL_BINARY);
  return run_shell(command);
}

inline Ran frugal(const std::string& arguments) { return shell("FRUGAL " + arguments); }

inline Ran frugal_lab(const std::string& arguments) {
  return run_shell(FRUGAL_LAB_BINARY " " + arguments);
}

// A run of milliseconds that uses every part: dropout, augmentation, momentum, compression.
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
