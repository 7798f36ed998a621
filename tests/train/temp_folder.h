// A folder that vanishes with its test.
#pragma once
#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace frugal::train {

struct TempFolder {
  std::string path = (std::filesystem::temp_directory_path() / "frugal_train_XXXXXX").string();
  TempFolder() { REQUIRE(mkdtemp(path.data()) != nullptr); }
  ~TempFolder() { std::filesystem::remove_all(path); }
};

}  // namespace frugal::train
