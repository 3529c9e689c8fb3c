// A server of a few documents over HTTP, for scrapers: GET and HEAD alone, a request of at most 8
// KiB, 32 connections at most, five seconds for each, and a connection is closed after its answer.
// It reads no file and takes no data. One thread; nobody who is slow keeps others waiting.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::tools {

struct HttpRequest {
    std::string path;    ///< without a query
    std::string accept;  ///< the header's value; empty: none
};

struct HttpReply {
    int status = 200;
    std::string type = "text/plain; charset=utf-8";
    std::string body;
};

using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

/// The bytes that answer a request whose head is complete, whatever it is. Pure, except for
/// `handler`.
std::string http_answer(std::string_view head, const HttpHandler& handler);

/// An address to listen on: "127.0.0.1:9435", "[::1]:9435", "localhost:9435", or a port alone,
/// which is on 127.0.0.1.
struct ListenAddress {
    std::string host;  ///< numeric
    bool v6 = false;
    int port = 0;         ///< 0: any that is free
    std::string problem;  ///< why the text is none; empty: it is one
};
ListenAddress parse_listen_address(const std::string& text);

/// Thread-safety: none.
class HttpServer {
  public:
    /// Listens, or says why not in problem(), one line.
    explicit HttpServer(const ListenAddress& address);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    const std::string& problem() const { return problem_; }
    int port() const { return port_; }

    /// Serves until `stop` is readable; calls `also` whenever `event` is.
    void run(const HttpHandler& handler, int stop, int event, const std::function<void()>& also);

  private:
    struct Connection;

    void accept_all();
    /// False: it is over.
    bool serve(Connection& connection, const HttpHandler& handler);

    int listener_ = -1;
    int port_ = 0;
    std::string problem_;
    std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace memlab::tools
