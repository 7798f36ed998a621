#include "tests/apps/forked_program.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <utility>

#include "apps/cli/cli.h"

namespace frugal::apps {
namespace {

int server = -1;  // the socket of the process that forks
pid_t server_id = 0;

bool send_all(int socket, const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(socket, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

// Lists of texts: their number, and for each its size and its bytes.
void append(std::string& message, size_t number) {
  message.append(reinterpret_cast<const char*>(&number), sizeof(number));
}
void append(std::string& message, const std::vector<std::string>& texts) {
  append(message, texts.size());
  for (const std::string& text : texts) {
    append(message, text.size());
    message += text;
  }
}
std::vector<std::string> taken(const char*& at) {
  const auto number = [&at] {
    size_t value = 0;
    std::copy_n(at, sizeof(value), reinterpret_cast<char*>(&value));
    at += sizeof(value);
    return value;
  };
  std::vector<std::string> texts(number());
  for (std::string& text : texts) {
    const size_t size = number();
    text.assign(at, size);
    at += size;
  }
  return texts;
}

int run(const std::string& message) {
  const char* at = message.data();
  std::vector<std::string> words = taken(at);
  const std::vector<std::string> environment = taken(at), places = taken(at);
  clearenv();
  for (const std::string& each : environment)
    setenv(each.substr(0, each.find('=')).c_str(), each.c_str() + each.find('=') + 1, 1);
  constexpr int kNew = O_WRONLY | O_CREAT | O_TRUNC;
  const int out = open(places[1].c_str(), kNew, 0644), err = open(places[2].c_str(), kNew, 0644);
  if (chdir(places[0].c_str()) != 0 || dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
    _exit(99);
  close(out);
  close(err);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::cout.clear();  // an earlier command may have written to a full disk
  const int status = run_cli(static_cast<int>(words.size()), argv.data());
  std::cout.flush();
  std::fflush(nullptr);
  return status;
}

bool send_message(int socket, const std::string& message) {
  const size_t bytes = message.size();
  return send_all(socket, &bytes, sizeof(bytes)) && send_all(socket, message.data(), bytes);
}
bool receive_message(int socket, std::string& message) {
  size_t bytes = 0;
  if (!receive_all(socket, &bytes, sizeof(bytes))) return false;
  message.resize(bytes);
  return receive_all(socket, message.data(), bytes);
}

// Forks a process that runs a command for each message. Returns its socket, or -1.
int start_worker(int server_socket, pid_t& id) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return -1;
  id = fork();
  if (id == 0) {
    close(server_socket);
    close(sockets[0]);
    for (std::string message; receive_message(sockets[1], message);) {
      const int status = run(message) << 8;
      if (!send_all(sockets[1], &status, sizeof(status))) break;
    }
    std::exit(0);  // not _exit(): a sanitizer looks for leaks here
  }
  close(sockets[1]);
  return sockets[0];
}

// Has commands run until the tests have ended. A process runs one after the other, as a program
// does that uses the Python package, until a command ends the process. With a process for each, the
// pages that it copied after fork() took a third of the time.
[[noreturn]] void serve(int socket) {
  int worker = -1;
  pid_t id = 0;
  for (std::string message; receive_message(socket, message);) {
    int status = 99 << 8;
    if (worker < 0) worker = start_worker(socket, id);
    if (worker >= 0 &&
        !(send_message(worker, message) && receive_all(worker, &status, sizeof(status)))) {
      waitpid(id, &status, 0);
      close(std::exchange(worker, -1));
    }
    if (!send_all(socket, &status, sizeof(status))) break;
  }
  if (worker >= 0) {
    close(worker);
    waitpid(id, nullptr, 0);
  }
  _exit(0);
}

// Begins before the first test and ends after the last one.
struct Server : doctest::IReporter {
  explicit Server(const doctest::ContextOptions&) {}
  void test_run_start() override {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return;
    std::cout.flush();
    std::fflush(nullptr);
    server_id = fork();
    if (server_id == 0) {
      close(sockets[0]);
      serve(sockets[1]);
    }
    close(sockets[1]);
    server = sockets[0];
  }
  // Waits, so that the time of the tests holds that of the programs.
  void test_run_end(const doctest::TestRunStats&) override {
    close(server);
    if (server_id > 0) waitpid(server_id, nullptr, 0);
  }
  void report_query(const doctest::QueryData&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("server", 1, Server);

}  // namespace

std::optional<std::vector<std::string>> words_of(const std::string& command) {
  std::vector<std::string> words;
  bool inside = false;  // a word
  char quote = 0;
  for (size_t i = 0; i < command.size(); ++i) {
    const char c = command[i];
    if (quote == '\'' ? c == '\'' : quote == '"' && c == '"') {
      quote = 0;
    } else if (quote == '\'') {
      words.back() += c;
    } else if (c == '$' || c == '`') {
      return std::nullopt;
    } else if (c == '\\') {
      if (++i == command.size() || std::string("\n$`").find(command[i]) != std::string::npos)
        return std::nullopt;
      const bool kept = quote == '"' && command[i] != '"' && command[i] != '\\';
      if (!std::exchange(inside, true)) words.emplace_back();
      if (kept) words.back() += c;
      words.back() += command[i];
    } else if (quote == '"') {
      words.back() += c;
    } else if (c == ' ') {
      inside = false;
    } else if (std::string("|&;<>()*?\n").find(c) != std::string::npos ||
               ((c == '~' || c == '#') && !inside)) {
      return std::nullopt;
    } else {
      if (!std::exchange(inside, true)) words.emplace_back();
      if (c == '\'' || c == '"')
        quote = c;
      else
        words.back() += c;
    }
  }
  return quote == 0 ? std::optional(words) : std::nullopt;
}

int run_forked(const std::vector<std::string>& words, const std::string& out,
               const std::string& err) {
  REQUIRE(server >= 0);
  std::vector<std::string> environment;
  for (char** each = environ; *each != nullptr; ++each) environment.emplace_back(*each);
  std::string message;
  append(message, words);
  append(message, environment);
  append(message, {std::filesystem::current_path().string(), out, err});
  int status = 0;
  REQUIRE((send_message(server, message) && receive_all(server, &status, sizeof(status))));
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_CASE("words of a command line are those that a shell passes on") {
  const auto words = [](const char* command) {
    std::string all;
    const auto found = words_of(command);
    for (const std::string& word : found.value()) all += "<" + word + ">";
    return all;
  };
  CHECK(words("train  c.json --out '' ") == "<train><c.json><--out><>");
  CHECK(words(R"(--set 'a.b="1/4 of it"' x="y z"'w')") == R"(<--set><a.b="1/4 of it"><x=y zw>)");
  CHECK(words(R"(a\ b "c\"d\e" [8,8,3] a#~)") == R"(<a b><c"d\e><[8,8,3]><a#~>)");
  for (const char* command : {"a | b", "a $b", "\"$b\"", "a > b", "a; b", "'a", "*", "~", "a\\"})
    CHECK(!words_of(command));
}

}  // namespace frugal::apps
