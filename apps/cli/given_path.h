// Checks of the paths that a command line names. Each returns what is wrong; empty: nothing.
#pragma once
#include <string>

namespace frugal::apps {

std::string check_named(const std::string& name);  // it is not empty
std::string check_there(const std::string& name);  // there is such a file or folder
// Errors (ConfigError): check_there(), said of this option or argument.
void must_be_there(const char* option, const std::string& name);
// A file can be written there: a folder has it, and no run needs what is there.
std::string check_place(const std::string& name);
std::string check_folder(const std::string& name);  // it is a folder, or one can be made there

}  // namespace frugal::apps
