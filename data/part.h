// Parts of a data set, and what their files and folders are called.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace frugal::data {

enum class Part : uint8_t { train, validation, test };

// "train"; "val", "valid" and "validation"; "test".
std::vector<std::string> part_names(Part part);

// The one file or folder that is there for a part; empty: none is. Errors: two, which are named.
std::string only_one(const std::string& op, const std::vector<std::string>& there);

}  // namespace frugal::data
