#include "apps/cli/command_line.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>
#include <thread>

#include "apps/cli/signals.h"
#include "apps/config/keys/config_table.h"
#include "apps/config/keys/keys_of_options.h"
#include "apps/config/set_up_device.h"
#include "apps/text/wrapped.h"
#include "core/device.h"
#include "core/words/nearest.h"
#include "core/words/quoted.h"
#include "data/formats/json_strict.h"
#include "distributed/communicator.h"

namespace frugal::apps {
namespace {

constexpr int kFailure = 1, kUsage = 2;
constexpr const char* kSetHelp =
    "Change one key: path=value, the value as JSON or else as text; repeatable";

// Which of several processes speaks. Most errors are those of all ranks. So the others wait a
// little, because the end of rank 0 ends them before they repeat its words.
std::string speaker() {
  try {
    const distributed::Launch launched = distributed::launch();
    if (launched.ranks == 1) return "";
    if (launched.rank > 0) std::this_thread::sleep_for(std::chrono::seconds(3));
    return fmt::format("rank {}: ", launched.rank);
  } catch (const Error&) {
    return "";  // the message that comes says it
  }
}

bool is_first_rank() {
  try {
    return distributed::launch().rank == 0;
  } catch (const Error&) {
    return true;
  }
}

// Did whoever read the output stop reading, as `head` does?
bool is_reader_gone() {
  pollfd out = {STDOUT_FILENO, POLLOUT, 0};
  return poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

class WrappedHelp : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return wrapped(CLI::Formatter::make_help(app, std::move(name), mode));
  }
};

int complain(const std::string& what, int status) {
  std::fflush(stdout);
  // Whatever a message forgot to escape: no text of a file moves the cursor.
  std::fprintf(stderr, "%serror: %s\n", speaker().c_str(), without_controls(what).c_str());
  return status;
}

// The status of a command whose own is `status`. What was printed must have arrived: a write that
// failed long ago is seen in the stream's flag alone. The flag of std::cout counts, too.
int end_of_output(int status) {
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout.good();
  if (!failed) return status;
  if (is_reader_gone()) return 128 + SIGPIPE;  // what a process without a handler ends with
  return complain("cannot write to stdout: is the disk full?", kFailure);
}

}  // namespace

void check_output() {
  if (std::ferror(stdout) != 0) throw OutputFailed();
}

CLI::App* command(CLI::App& app, const std::string& name, const std::string& help) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->failure_message(CLI::FailureMessage::simple);
  return sub;
}

CLI::Option* one_each(CLI::Option* option) {
  return option->expected(1)->take_all()->allow_extra_args(false);
}

void add_sets(CLI::App* sub, std::vector<std::string>& sets) {
  one_each(sub->add_option("--set", sets, kSetHelp)->type_name("PATH=VALUE"));
}

CLI::Validator whole(int64_t least, int64_t most) {
  // The library itself takes 1e20 and -1 for numbers that nobody gave, and reads 010 as 8.
  const auto check = [least, most](const std::string& text) -> std::string {
    int64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    const bool octal = text.size() > 1 && text[0] == '0' && stop == end;
    if (error == std::errc() && stop == end && value >= least && value <= most && !octal) return "";
    return fmt::format("expected a whole number from {} to {}{}, got {}", least, most,
                       octal ? " without a 0 in front" : "", in_quotes(text));
  };
  return CLI::Validator(check, fmt::format("{} to {}", least, most));
}

CLI::Validator real(double least, double most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    double value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= least && value <= most) return "";
    return fmt::format("expected a number from {} to {}, got {}", least, most, in_quotes(text));
  };
  return CLI::Validator(check, fmt::format("{} to {}", least, most));
}

CLI::App* add_repeats(CLI::App* sub, bool& json, int64_t& repeats) {
  sub->add_flag("--json", json, "Print JSON");
  sub->add_option("--repeats", repeats, "Measurements whose median counts")
      ->check(whole(1, 1000000));
  return sub;
}

void add_place(CLI::App* sub, std::string& device, std::string& dtype) {
  const auto is_device = [](const std::string& text) -> std::string {
    try {
      if (Device::parse(text) != kMeta) return "";
    } catch (const Error&) {  // below
    }
    return fmt::format("expected cpu, cuda or cuda:N, got {}", in_quotes(text));
  };
  sub->add_option("--device", device, "cpu, cuda, or one of several GPUs, such as cuda:1")
      ->check(CLI::Validator(is_device, "DEVICE"))
      ->capture_default_str();
  sub->add_option("--dtype", dtype, "Type of the values: f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
}

namespace {

// The command that comes next on the line, and what follows it.
CLI::App* subcommand_named(CLI::App& app, const std::string& name) {
  const auto all = app.get_subcommands([](CLI::App*) { return true; });
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const CLI::App* sub) { return sub->get_name() == name; });
  return found == all.end() ? nullptr : *found;
}

// "; did you mean 'train'?" where a name of `names` is near.
std::string did_you_mean(const std::string& given, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  const std::string nearest = nearest_name(given, names);
  const int64_t most = std::max<int64_t>(2, static_cast<int64_t>(given.size()) / 3);
  return nearest.starts_with(given) || edit_distance(given, nearest) <= most
             ? fmt::format("; did you mean '{}'?", nearest)
             : "";
}

// Which word of the line is no command or option where it stands, and what may be meant. Empty: it
// is not known.
std::string misspelled(CLI::App& app, const std::vector<std::string>& words) {
  CLI::App* at = &app;
  size_t next = 0;
  while (next < words.size())
    if (CLI::App* const sub = subcommand_named(*at, words[next]); sub != nullptr) {
      at = sub;
      ++next;
    } else {
      break;
    }
  if (next < words.size() && at->get_require_subcommand_min() > 0 &&
      !words[next].starts_with("-")) {
    std::vector<std::string> names;
    for (const CLI::App* sub : at->get_subcommands([](CLI::App*) { return true; }))
      if (!sub->get_group().empty()) names.push_back(sub->get_name());
    return fmt::format("expected a command{}, got {}{}",
                       at == &app ? std::string() : " of " + at->get_name(), in_quotes(words[next]),
                       did_you_mean(words[next], names));
  }
  std::vector<std::string> options;
  for (const CLI::Option* option : at->get_options())
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  const bool sets = std::find(options.begin(), options.end(), "--set") != options.end();
  for (size_t i = next; i < words.size() && words[i] != "--"; ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    if (sets && equals != std::string::npos && !name.starts_with("-") &&
        !words[i - 1].starts_with("--") && name == key_meant(name))
      return fmt::format("expected --set before {}", in_quotes(words[i]));
    if (!name.starts_with("--") || std::find(options.begin(), options.end(), name) != options.end())
      continue;
    std::string value = "VALUE";
    if (equals != std::string::npos)
      value = words[i].substr(equals + 1);
    else if (i + 1 < words.size() && !words[i + 1].starts_with("-"))
      value = words[i + 1];
    const bool lacks_letter =
        std::find(options.begin(), options.end(), name + "s") != options.end();
    const std::string key = sets && !lacks_letter ? key_meant(name.substr(2)) : "";
    return fmt::format("{} has no option {}{}", at->get_name(), in_quotes(name),
                       key.empty() ? did_you_mean(name, options)
                                   : fmt::format("; keys of the configuration are set by --set "
                                                 "{}={}",
                                                 key, printable(value)));
  }
  return "";
}

constexpr const char* kNoMemory = "out of memory: the system has none left";
std::terminate_handler otherwise = nullptr;

// A destructor that takes memory and gets none ends the program at once, whatever catches the error
// (findings/json_destructor.sh). The message is the same, and takes none.
[[noreturn]] void end_without_memory() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    for (const char* text : {"error: ", kNoMemory, "\n"})
      if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
    _exit(kFailure);
  } catch (...) {
  }
  otherwise();
  std::abort();
}

// The words of a command line, where --name=~/x is below the home folder.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  for (std::string& word : words)
    if (const size_t equals = word.find('='); word.starts_with("--") && equals != word.npos)
      word = word.substr(0, equals + 1) + at_home(word.substr(equals + 1));
  return words;
}

// Ops keep what oneDNN makes for them (ops/onednn.h), so oneDNN need not keep 1024 primitives
// beside, also those that no op needs any more. A process that embeds the library may share oneDNN
// with PyTorch, which relies on them; so this is left to programs that have it for themselves.
void let_onednn_keep_nothing() {
  if (std::getenv("DNNL_PRIMITIVE_CACHE_CAPACITY") == nullptr)
    ::setenv("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "0", 0);
}

}  // namespace

int run_command_line(CLI::App& app, int argc, char** argv,
                     const std::function<void(CLI::App&)>& add_commands) {
  app.require_subcommand(1);
  let_onednn_keep_nothing();
  // A limit on the size of files (ulimit -f) is then an error of the write, with its message.
  std::signal(SIGXFSZ, SIG_IGN);
  if (std::get_terminate() != end_without_memory)
    otherwise = std::set_terminate(end_without_memory);
  // An earlier command of the process may have written to a full disk.
  std::clearerr(stdout);
  std::cout.clear();
  const SettingsScope settings;
  app.failure_message(CLI::FailureMessage::simple);
  app.formatter(std::make_shared<WrappedHelp>());  // before the commands, which take it over
  try {
    add_commands(app);
    std::vector<std::string> words = words_of(argc, argv);
    std::vector<char*> places;
    for (std::string& word : words) places.push_back(word.data());
    app.parse(argc, places.data());
    return end_of_output(0);
  } catch (const CLI::Success& e) {
    const int status = app.exit(e);
    std::cout.flush();
    return end_of_output(status);
  } catch (const OutputFailed&) {
    return end_of_output(kFailure);
  } catch (const CLI::ParseError& e) {
    const std::string word = misspelled(app, {argv + 1, argv + argc});
    return complain(fmt::format("{}; see --help", word.empty() ? e.what() : word), kUsage);
  } catch (const ConfigError& e) {
    return complain(with_keys(e.what()), kUsage);
  } catch (const Interrupted& e) {
    // All ranks of a job stop at the same step. Rank 0 says so, and the others wait for that.
    if (is_first_rank()) complain(e.what(), 0);
    distributed::end_together();
    return 128 + e.number();
  } catch (const std::system_error& e) {
    return complain(e.code() == std::errc::resource_unavailable_try_again
                        ? std::string("out of memory: the system starts no more threads; raise the "
                                      "limit of the process (ulimit -v, ulimit -u), or lower "
                                      "threads and data.workers")
                        : std::string(e.what()),
                    kFailure);
  } catch (const std::bad_alloc&) {
    return complain(kNoMemory, kFailure);
  } catch (const std::exception& e) {
    return complain(data::json_reason(e), kFailure);
  }
}

}  // namespace frugal::apps
