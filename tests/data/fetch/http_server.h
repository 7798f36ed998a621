// A small HTTP/1.1 server in a thread of the test, whose answers the test writes.
#pragma once
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace frugal_test {

struct HttpRequest {
  std::string path, text;  // text: the whole head
  // A header's value; "" without it.
  std::string header(const std::string& name) const {
    const size_t at = text.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const size_t begin = at + name.size() + 4;
    return text.substr(begin, text.find("\r\n", begin) - begin);
  }
};

// The bytes of an answer as they go out; then the connection closes.
using HttpHandler = std::function<std::string(const HttpRequest&)>;

inline std::string answer(const std::string& status, const std::string& body,
                          const std::string& headers = {}) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
         headers + "Connection: close\r\n\r\n" + body;
}

// A file, or its end where the request asks for that, as servers that know ranges do.
inline std::string serve(const HttpRequest& request, const std::string& file,
                         const std::string& tag) {
  const std::string range = request.header("Range"), version = request.header("If-Range");
  const std::string headers = tag.empty() ? "" : "ETag: " + tag + "\r\n";
  if (range.empty() || (!version.empty() && version != tag)) return answer("200 OK", file, headers);
  const size_t begin = std::stoul(range.substr(6));
  if (begin >= file.size()) return answer("416 Range Not Satisfiable", "");
  return answer("206 Partial Content", file.substr(begin),
                headers + "Content-Range: bytes " + std::to_string(begin) + "-" +
                    std::to_string(file.size() - 1) + "/" + std::to_string(file.size()) + "\r\n");
}

class HttpServer {
 public:
  // Throws where no socket may listen.
  explicit HttpServer(HttpHandler handler) : handler_(std::move(handler)) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    if (socket_ < 0 || bind(socket_, plain, size) != 0 || listen(socket_, 16) != 0 ||
        getsockname(socket_, plain, &size) != 0)
      throw std::runtime_error("no local server can be started");
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { run(); });
  }
  ~HttpServer() {
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::vector<HttpRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void run() {
    while (true) {
      const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) return;
      HttpRequest request;
      char buffer[4096];
      while (request.text.find("\r\n\r\n") == std::string::npos) {
        const ssize_t got = recv(connection, buffer, sizeof(buffer), 0);
        if (got <= 0) break;
        request.text.append(buffer, static_cast<size_t>(got));
      }
      const size_t begin = request.text.find(' ') + 1;
      request.path = request.text.substr(begin, request.text.find(' ', begin) - begin);
      {
        const std::lock_guard lock(mutex_);
        requests_.push_back(request);
      }
      const std::string out = handler_(request);
      for (size_t sent = 0; sent < out.size();) {
        const ssize_t now = send(connection, out.data() + sent, out.size() - sent, MSG_NOSIGNAL);
        if (now <= 0) break;
        sent += static_cast<size_t>(now);
      }
      shutdown(connection, SHUT_WR);
      while (recv(connection, buffer, sizeof(buffer), 0) > 0) {  // until the client has read all
      }
      close(connection);
    }
  }

  HttpHandler handler_;
  int socket_ = -1;
  uint16_t port_ = 0;
  std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::thread thread_;
};

}  // namespace frugal_test
