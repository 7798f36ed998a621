// What the command lines of `frugal` and `frugal-lab` share.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "apps/cli/given_path.h"

namespace frugal::apps {

CLI::App* command(CLI::App& app, const std::string& name, const std::string& help);

// An option that may be given several times, with one value each: a greedy one would take CONFIG
// for one more of its values.
CLI::Option* one_each(CLI::Option* option);
void add_sets(CLI::App* sub, std::vector<std::string>& sets);  // --set

// Checks of a number: whole, or any that is finite. What is wrong is said as "expected ..., got
// ...".
CLI::Validator whole(int64_t least, int64_t most);
CLI::Validator real(double least, double most);

// --json and --repeats; gives `sub`.
CLI::App* add_repeats(CLI::App* sub, bool& json, int64_t& repeats);
void add_place(CLI::App* sub, std::string& device, std::string& dtype);  // --device and --dtype

// What was printed did not arrive.
struct OutputFailed {};
// For a command with much output, between two parts of it. Errors: OutputFailed.
void check_output();

// Adds the commands and runs the one that was asked for. Returns the exit status: 0; 1 for a
// failure, also where stdout could not be written; 2 for a mistake on the command line or in a
// configuration; 129, 130 and 143 after SIGHUP, SIGINT and SIGTERM; 141, without a word, where the
// reader of stdout is gone. Errors go to stderr as "error: ...".
int run_command_line(CLI::App& app, int argc, char** argv,
                     const std::function<void(CLI::App&)>& add_commands);

}  // namespace frugal::apps
