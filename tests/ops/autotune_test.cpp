#include "ops/autotune.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"

namespace autotune = frugal::ops::autotune;

namespace {

// Names a file for as long as it lives; off afterwards.
struct File {
  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("frugal_autotune_" + std::to_string(getpid()) + ".txt");
  File() { std::filesystem::remove(path); }
  ~File() {
    autotune::set_file("");
    std::filesystem::remove(path);
  }
  void write(const std::string& text) const { std::ofstream(path) << text; }
  std::string read() const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

}  // namespace

TEST_CASE("nothing is measured or kept unless a file is named") {
  autotune::set_file("");
  CHECK_FALSE(autotune::enabled());
  autotune::remember("problem", "choice");
  CHECK_FALSE(autotune::find("problem").has_value());
}

TEST_CASE("choices outlive the process that made them") {
  const File file;
  autotune::set_file(file.path.string());
  CHECK(autotune::enabled());
  CHECK_FALSE(autotune::find("conv a").has_value());
  autotune::remember("conv a", "engine 1");
  autotune::remember("conv b", "engine 2, 3=4");
  autotune::remember("conv a", "engine 5");
  CHECK(file.read() == "frugal autotune 1\nconv a\tengine 5\nconv b\tengine 2, 3=4\n");
  autotune::set_file(file.path.string());
  CHECK(autotune::find("conv a") == "engine 5");
  CHECK(autotune::find("conv b") == "engine 2, 3=4");
}

TEST_CASE("what another process wrote meanwhile stays") {
  const File file;
  autotune::set_file(file.path.string());
  autotune::remember("mine", "1");
  file.write("frugal autotune 1\nmine\t1\ntheirs\t2\n");
  autotune::remember("new", "3");
  CHECK(file.read() == "frugal autotune 1\nmine\t1\nnew\t3\ntheirs\t2\n");
}

TEST_CASE("a file that is not ours is ignored, and written anew") {
  for (const char* text : {"", "something else\n", "frugal autotune 1\nno tab\n",
                           "frugal autotune 1\na\tb\tc\n", "frugal autotune 1\na\tb\n\tb\n"}) {
    CAPTURE(text);
    const File file;
    file.write(text);
    autotune::set_file(file.path.string());
    CHECK_FALSE(autotune::find("a").has_value());
    autotune::remember("a", "x");
    CHECK(file.read() == "frugal autotune 1\na\tx\n");
  }
}

TEST_CASE("a file that cannot be written leaves the choices of this run") {
  autotune::set_file("/nowhere/at/all");
  autotune::remember("a", "x");
  CHECK(autotune::find("a") == "x");
  autotune::set_file("");
}
