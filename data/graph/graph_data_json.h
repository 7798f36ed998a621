// Reads JSON objects of numbers and lists of numbers: {"name": [1, 2], "other": 3}. Internal to
// data.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace frugal::data {

// Calls entry(name, numbers, is_list) for each member, in the file's order. Only one member is in
// memory at a time. Errors (with the path): an unreadable file; invalid JSON; values that are
// neither whole numbers nor lists of them; what `entry` throws.
using JsonEntry = std::function<void(const std::string&, const std::vector<int64_t>&, bool)>;
void read_json_numbers(const char* op, const std::string& path, const JsonEntry& entry);

// The number that a node's name stands for. Errors: a name that is no number in [0, nodes).
int64_t node_of(const char* op, const std::string& path, const std::string& name, int64_t nodes);

}  // namespace frugal::data
