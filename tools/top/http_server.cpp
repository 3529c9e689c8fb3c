#include "tools/top/http_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace memlab::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_request_bytes = 8192;
constexpr std::size_t most_connections = 32;
constexpr std::chrono::seconds patience{5};

const char* reason_of(int status) {
    switch (status) {
        case 200:
            return "OK";
        case 400:
            return "Bad Request";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 431:
            return "Request Header Fields Too Large";
        default:
            return "Service Unavailable";
    }
}

std::string answer_text(const HttpReply& reply, bool with_body) {
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " " + reason_of(reply.status) +
                       "\r\nContent-Type: " + reply.type +
                       "\r\nContent-Length: " + std::to_string(reply.body.size()) +
                       "\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n" +
                       (reply.status == 405 ? "Allow: GET, HEAD\r\n" : "") + "\r\n";
    return with_body ? text + reply.body : text;
}

HttpReply error_reply(int status) {
    HttpReply reply;
    reply.status = status;
    reply.body = std::string(reason_of(status)) + "\n";
    return reply;
}

bool equals_without_case(std::string_view a, std::string_view b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
        return std::tolower(x) == std::tolower(y);
    });
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
        text.remove_prefix(1);
    }
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r')) {
        text.remove_suffix(1);
    }
    return text;
}

std::string_view take_line(std::string_view* text) {
    const std::size_t end = std::min(text->find('\n'), text->size());
    std::string_view line = text->substr(0, end);
    text->remove_prefix(std::min(end + 1, text->size()));
    if (line.ends_with('\r')) {
        line.remove_suffix(1);
    }
    return line;
}

/// Where the head ends; npos: it is not complete.
std::size_t end_of_head(std::string_view text) {
    const std::size_t full = text.find("\r\n\r\n");
    const std::size_t bare = text.find("\n\n");
    return std::min(full == std::string_view::npos ? full : full + 4,
                    bare == std::string_view::npos ? bare : bare + 2);
}

}  // namespace

std::string http_answer(std::string_view head, const HttpHandler& handler) {
    const std::string_view first = take_line(&head);
    const std::size_t method_end = first.find(' ');
    const std::size_t target_end =
        method_end == std::string_view::npos ? method_end : first.find(' ', method_end + 1);
    if (target_end == std::string_view::npos ||
        !first.substr(target_end + 1).starts_with("HTTP/1.")) {
        return answer_text(error_reply(400), true);
    }
    const std::string_view method = first.substr(0, method_end);
    if (method != "GET" && method != "HEAD") {
        return answer_text(error_reply(405), true);
    }
    std::string_view target = first.substr(method_end + 1, target_end - method_end - 1);
    if (!target.starts_with('/')) {
        return answer_text(error_reply(400), method == "GET");
    }
    HttpRequest request;
    request.path = target.substr(0, target.find('?'));
    while (!head.empty()) {
        const std::string_view line = take_line(&head);
        const std::size_t colon = line.find(':');
        if (colon != std::string_view::npos &&
            equals_without_case(trimmed(line.substr(0, colon)), "accept")) {
            request.accept = trimmed(line.substr(colon + 1));
        }
    }
    return answer_text(handler(request), method == "GET");
}

ListenAddress parse_listen_address(const std::string& text) {
    ListenAddress address;
    const std::size_t colon = text.rfind(':');
    std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
    const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
    if (host.size() > 1 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
        address.v6 = true;
    }
    address.host = host.empty() || host == "localhost" ? "127.0.0.1" : host;
    std::array<unsigned char, 16> bytes{};
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (error != std::errc() || end != port.data() + port.size() || address.port < 0 ||
        address.port > 65535) {
        address.problem = "there is no port in '" + text +
                          "': give ADDRESS:PORT, as in "
                          "127.0.0.1:9435";
    } else if (inet_pton(address.v6 ? AF_INET6 : AF_INET, address.host.c_str(), bytes.data()) !=
               1) {
        address.problem = "'" + host +
                          "' is no numeric address: give ADDRESS:PORT, as in "
                          "127.0.0.1:9435 or [::1]:9435";
    }
    return address;
}

struct HttpServer::Connection {
    int descriptor = -1;
    Clock::time_point until;
    std::string request;
    std::string answer;  ///< empty: the request is not complete
    std::size_t sent = 0;

    Connection() = default;
    ~Connection() { close(descriptor); }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
};

HttpServer::HttpServer(const ListenAddress& address) {
    sockaddr_storage storage{};
    socklen_t size = 0;
    const auto port = htons(static_cast<std::uint16_t>(address.port));
    if (address.v6) {
        sockaddr_in6 to{};
        to.sin6_family = AF_INET6;
        to.sin6_port = port;
        inet_pton(AF_INET6, address.host.c_str(), &to.sin6_addr);
        std::memcpy(&storage, &to, sizeof to);
        size = sizeof to;
    } else {
        sockaddr_in to{};
        to.sin_family = AF_INET;
        to.sin_port = port;
        inet_pton(AF_INET, address.host.c_str(), &to.sin_addr);
        std::memcpy(&storage, &to, sizeof to);
        size = sizeof to;
    }
    listener_ =
        socket(address.v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const int on = 1;
    auto* const where = reinterpret_cast<sockaddr*>(&storage);
    if (listener_ < 0 || setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(listener_, where, size) != 0 || listen(listener_, 16) != 0) {
        problem_ = std::strerror(errno);
        return;
    }
    if (getsockname(listener_, where, &size) == 0) {
        port_ = address.v6 ? ntohs(reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port)
                           : ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
    }
}

HttpServer::~HttpServer() {
    if (listener_ >= 0) {
        close(listener_);
    }
}

void HttpServer::accept_all() {
    while (connections_.size() < most_connections) {
        const int descriptor = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor < 0) {
            return;
        }
        connections_.push_back(std::make_unique<Connection>());
        connections_.back()->descriptor = descriptor;
        connections_.back()->until = Clock::now() + patience;
    }
}

bool HttpServer::serve(Connection& connection, const HttpHandler& handler) {
    while (connection.answer.empty()) {
        std::array<char, 2048> bytes{};
        const ssize_t length = recv(connection.descriptor, bytes.data(), bytes.size(), 0);
        if (length < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        if (length == 0) {
            return false;
        }
        connection.request.append(bytes.data(), static_cast<std::size_t>(length));
        const std::size_t end = end_of_head(connection.request);
        if (end != std::string::npos) {
            connection.answer =
                http_answer(std::string_view(connection.request).substr(0, end), handler);
        } else if (connection.request.size() > most_request_bytes) {
            connection.answer = answer_text(error_reply(431), true);
        }
    }
    while (connection.sent < connection.answer.size()) {
        const ssize_t part = send(connection.descriptor, connection.answer.data() + connection.sent,
                                  connection.answer.size() - connection.sent, MSG_NOSIGNAL);
        if (part < 0) {
            return errno == EAGAIN || errno == EINTR;
        }
        connection.sent += static_cast<std::size_t>(part);
    }
    shutdown(connection.descriptor, SHUT_WR);
    return false;
}

void HttpServer::run(const HttpHandler& handler, int stop, int event,
                     const std::function<void()>& also) {
    for (;;) {
        std::vector<pollfd> files = {{stop, POLLIN, 0}, {event, POLLIN, 0}};
        files.push_back({connections_.size() < most_connections ? listener_ : -1, POLLIN, 0});
        for (const auto& connection : connections_) {
            const short wanted = connection->answer.empty() ? POLLIN : POLLOUT;
            files.push_back({connection->descriptor, wanted, 0});
        }
        if (poll(files.data(), files.size(), connections_.empty() ? -1 : 500) < 0 &&
            errno != EINTR) {
            return;
        }
        if (files[0].revents != 0) {
            return;
        }
        if (files[1].revents != 0) {
            also();
        }
        const Clock::time_point now = Clock::now();
        std::size_t kept = 0;
        for (std::size_t i = 0; i < connections_.size(); ++i) {
            Connection& connection = *connections_[i];
            const bool goes_on =
                (files[i + 3].revents == 0 || serve(connection, handler)) && now < connection.until;
            if (goes_on) {
                std::swap(connections_[kept++], connections_[i]);
            }
        }
        connections_.resize(kept);
        if (files[2].revents != 0) {
            accept_all();
        }
    }
}

}  // namespace memlab::tools
