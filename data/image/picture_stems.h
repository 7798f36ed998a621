// Pictures of a folder by their names without endings.
#pragma once
#include <map>
#include <string>

namespace frugal::data {

// All pictures below `folder`, by their path in it without the ending, such as a/b for a/b.JPG, and
// without `suffix` where a name has one at its end. only_with_suffix: names without it are left
// out. `op` names the reader in messages.
// Errors: a folder that cannot be read; two pictures of one name, such as a.jpg and a.png, since
// nobody knows which of them is meant.
std::map<std::string, std::string> pictures_by_stem(const char* op, const std::string& folder,
                                                    const std::string& suffix = "",
                                                    bool only_with_suffix = false);

}  // namespace frugal::data
