#include "tools/live/client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "report/text/terminal.hpp"
#include "tools/live/find_processes.hpp"

namespace memlab::tools {
namespace {

using interpose::ReplyHead;

/// What a yield's time-out may be, and the move (interpose/answers/stepping_aside.cpp).
constexpr auto longest_yield = std::chrono::hours(1) + LiveConnection::default_timeout;

/// A connected socket, or -1 and errno. Does not wait: a full queue of connections answers EAGAIN.
int connect_to(const interpose::LiveAddress& address, std::chrono::steady_clock::time_point until) {
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (descriptor >= 0 && ::connect(descriptor, address.get(), address.size()) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || std::chrono::steady_clock::now() >= until) {
            const int error = errno;
            ::close(descriptor);
            errno = error;
            return -1;
        }
        ::poll(nullptr, 0, 1);
    }
    return descriptor;
}

/// Who listens, as this process sees its id; 0: one of a pid namespace that it does not see.
pid_t listener_of(int descriptor) {
    ucred peer{};
    socklen_t size = sizeof peer;
    return ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

}  // namespace

LiveConnection::LiveConnection(pid_t process, std::chrono::milliseconds timeout)
    : process_(process), timeout_(timeout) {
    const ProcessOwner owner = owner_of(process);
    if (!owner.exists) {
        problem_ = "there is no process " + std::to_string(process);
        return;
    }
    const std::string name = "process " + std::to_string(process);
    if (::geteuid() != 0 && owner.user != ::geteuid()) {
        problem_ =
            name + " belongs to " + user_text(owner.user) + ": only they and root can ask it";
        return;
    }
    const Clock::time_point until = Clock::now() + timeout;
    int error = 0;
    for (const SocketPlace& place : socket_places(process, owner)) {
        if (!place.address.fits()) {
            continue;
        }
        const int descriptor = connect_to(place.address, until);
        if (descriptor < 0) {
            if (errno == ECONNREFUSED) {
                remove_stale(place);
            } else if (errno != ENOENT) {
                error = errno;
            }
        } else if (listener_of(descriptor) == process) {
            socket_ = descriptor;
            return;
        } else {
            ::close(descriptor);
        }
    }
    if (error != 0 && error != ECONNREFUSED && error != EACCES) {
        problem_ = name + " does not answer: " + std::strerror(error);
    } else {
        problem_ = name +
                   " does not answer: it was started without memlab, has not used CUDA yet, or has "
                   "MEMLAB_LIVE=off";
    }
}

LiveConnection::~LiveConnection() {
    if (socket_ >= 0) {
        ::close(socket_);
    }
}

LiveConnection::LiveConnection(LiveConnection&& other) noexcept
    : process_(other.process_),
      timeout_(other.timeout_),
      socket_(std::exchange(other.socket_, -1)),
      problem_(std::move(other.problem_)) {}

LiveConnection& LiveConnection::operator=(LiveConnection&& other) noexcept {
    std::swap(process_, other.process_);
    std::swap(timeout_, other.timeout_);
    std::swap(socket_, other.socket_);
    std::swap(problem_, other.problem_);
    return *this;
}

LiveReply LiveConnection::fail(const std::string& why) {
    ::close(std::exchange(socket_, -1));
    problem_ = "process " + std::to_string(process_) + " " + why;
    return {{}, problem_};
}

bool LiveConnection::wait_for(short events, Clock::time_point until) const {
    for (;;) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
        if (left <= 0) {
            return false;
        }
        pollfd waiting{socket_, events, 0};
        const int ready = ::poll(&waiting, 1, static_cast<int>(std::min<long>(left + 1, 60'000)));
        if (ready > 0) {
            return true;  // an end or an error is told by what comes next
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
    }
}

/// False: it ended, or takes nothing. What it said before that can still be read.
bool LiveConnection::send(const std::string& line, Clock::time_point until) {
    for (std::size_t sent = 0; sent < line.size();) {
        const ssize_t part =
            ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (part > 0) {
            sent += static_cast<std::size_t>(part);
        } else if ((errno != EAGAIN && errno != EINTR) || !wait_for(POLLOUT, until)) {
            return false;
        }
    }
    return true;
}

LiveReply LiveConnection::ask(Verb verb, std::span<const std::string> arguments) {
    if (!connected()) {
        return {{}, problem_};
    }
    const std::string line = interpose::request_line(verb, arguments);
    if (line.size() > interpose::max_request_bytes) {
        return {{}, "a request has at most 4096 bytes: shorten the arguments"};
    }
    const Clock::time_point until = Clock::now() + timeout_;
    send(line, until);
    return finish(until);
}

bool LiveConnection::begin(Verb verb, std::span<const std::string> arguments) {
    const std::string line = interpose::request_line(verb, arguments);
    if (!connected() || line.size() > interpose::max_request_bytes) {
        return false;
    }
    if (!send(line, Clock::now() + timeout_)) {
        fail("ended, or closed the connection");
        return false;
    }
    return true;
}

LiveReply LiveConnection::finish(Clock::time_point until) {
    if (!connected()) {
        return {{}, problem_};
    }
    ReplyHead head;
    LiveReply reply;
    char buffer[std::size_t{64} << 10];
    while (head.state() == ReplyHead::State::incomplete ||
           (head.state() == ReplyHead::State::document &&
            reply.document.size() < head.document_bytes())) {
        const ssize_t got = ::recv(socket_, buffer, sizeof buffer, MSG_DONTWAIT);
        if (got == 0) {
            return fail("ended, or closed the connection");
        }
        if (got < 0) {
            if (errno == EAGAIN || errno == EINTR) {
                if (!wait_for(POLLIN, until)) {
                    return fail("does not answer: it is stopped, or very busy");
                }
                continue;
            }
            return fail(std::string("does not answer: ") + std::strerror(errno));
        }
        const std::string_view bytes(buffer, static_cast<std::size_t>(got));
        const std::size_t taken = head.take(bytes);
        if (head.state() == ReplyHead::State::document) {
            reply.document.append(bytes.substr(taken));
        }
    }
    if (head.state() == ReplyHead::State::error) {
        reply.problem =
            "process " + std::to_string(process_) + ": " + report::printable(head.text(), false);
    } else if (head.state() == ReplyHead::State::invalid ||
               reply.document.size() != head.document_bytes()) {
        return fail("answers in another protocol: is its memlab of another version?");
    }
    return reply;
}

LiveReply ask_process(pid_t process, Verb verb, std::span<const std::string> arguments) {
    LiveConnection connection(process);
    if (verb != Verb::yield) {
        return connection.ask(verb, arguments);
    }
    // It may take as long as its time-out allows; so whether anybody answers is asked first.
    if (LiveReply alive = connection.ask(Verb::status); !alive.ok()) {
        return alive;
    }
    return connection.begin(verb, arguments)
               ? connection.finish(LiveConnection::Clock::now() + longest_yield)
               : connection.ask(verb, arguments);
}

}  // namespace memlab::tools
