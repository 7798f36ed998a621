// Objects of numbers and lists of numbers in JSON: {"name": [1, 2], "other": 3}. Internal to data.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

// Calls entry(name, numbers, is a list) for each member, in the file's order; nothing else is kept
// in memory. Errors (with the path): unreadable file, invalid JSON, anything but whole numbers and
// lists of them, what `entry` throws.
using JsonEntry = std::function<void(const std::string&, const std::vector<int64_t>&, bool)>;
void read_json_numbers(const char* op, const std::string& path, const JsonEntry& entry);

// A node's name as its number. Errors: none in [0, nodes).
int64_t node_of(const char* op, const std::string& path, const std::string& name, int64_t nodes);

}  // namespace frugal::data
