// Asks a running process by its control channel (interpose/control/protocol.hpp).
//
// A process is found by its id: through its socket in the user's folder, the abstract one, and
// through /proc/PID/root where it has other folders, as in a container. Whoever listens must be
// that process, as the kernel says. Nothing waits for longer than its time-out.
#pragma once

#include <chrono>
#include <span>
#include <string>

#include <sys/types.h>

#include "interpose/control/protocol.hpp"

namespace memlab::tools {

using interpose::Verb;

/// Either a document or a problem, one line.
struct LiveReply {
    std::string document;  ///< JSON
    std::string problem;   ///< empty: none

    bool ok() const { return problem.empty(); }
};

/// Thread-safety: none.
class LiveConnection {
  public:
    static constexpr auto default_timeout = std::chrono::seconds(30);

    /// Connects, or says why not in problem(). `timeout`: of connecting, and of each request.
    explicit LiveConnection(pid_t process, std::chrono::milliseconds timeout = default_timeout);
    ~LiveConnection();
    LiveConnection(LiveConnection&& other) noexcept;
    LiveConnection& operator=(LiveConnection&& other) noexcept;
    LiveConnection(const LiveConnection&) = delete;
    LiveConnection& operator=(const LiveConnection&) = delete;

    /// Empty while requests can be made; else one line.
    const std::string& problem() const { return problem_; }
    bool connected() const { return socket_ >= 0; }
    pid_t process() const { return process_; }

    /// After a reply that does not come, or not in time, the connection is closed.
    LiveReply ask(Verb verb, std::span<const std::string> arguments = {});

    using Clock = std::chrono::steady_clock;

    /// ask() in two steps, so that many processes can be asked at once. Between the two there is no
    /// other request on this connection. begin() is false where the connection is closed then, or
    /// the request is too long; it waits as long as a request does only where the process takes
    /// none.
    bool begin(Verb verb, std::span<const std::string> arguments = {});
    /// What has come is taken even if `until` is over.
    LiveReply finish(Clock::time_point until);

  private:
    LiveReply fail(const std::string& why);
    bool send(const std::string& line, Clock::time_point until);
    bool wait_for(short events, Clock::time_point until) const;

    pid_t process_;
    std::chrono::milliseconds timeout_;
    int socket_ = -1;
    std::string problem_;
};

/// Asks once. As LiveConnection.
LiveReply ask_process(pid_t process, Verb verb, std::span<const std::string> arguments = {});

}  // namespace memlab::tools
