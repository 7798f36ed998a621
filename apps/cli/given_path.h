// Checks of the paths that a command line names. Each returns what is wrong; empty: nothing.
#pragma once
#include <string>

namespace frugal::apps {

std::string check_named(const std::string& name);  // it is not empty
std::string check_there(const std::string& name);  // there is such a file or folder
std::string check_place(const std::string& name);  // a file can be written there: a folder has it

}  // namespace frugal::apps
