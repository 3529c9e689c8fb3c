// Which processes have a control channel, and where a process has it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "interpose/control/protocol.hpp"

namespace memlab::tools {

struct ProcessOwner {
    bool exists = false;
    uid_t user = 0;        ///< effective, as this process sees it
    uid_t inner_user = 0;  ///< as its own user namespace does
    pid_t inner_pid = 0;   ///< as its own pid namespace does
};

ProcessOwner owner_of(pid_t process);

/// "4711" as a process id; 0: it is none.
pid_t process_id(std::string_view text);

/// Whether its paths are those of this process.
bool shares_files(pid_t process);
/// Empty: not known.
std::string working_directory_of(pid_t process);
/// Its arguments, on one line; empty: not known.
std::string command_line_of(pid_t process);

/// "user alice (1001)", or "user 1001".
std::string user_text(uid_t user);

/// A place where a process may have its socket.
struct SocketPlace {
    interpose::LiveAddress address;
    std::string path;  ///< empty: abstract
};

/// In the order in which to try them.
std::vector<SocketPlace> socket_places(pid_t process, const ProcessOwner& owner);

/// Removes the file if it is this user's and nobody listens: a killed process has left it.
void remove_stale(const SocketPlace& place);

/// The processes that have a socket, and that this user may ask (root: all), in order of their ids.
/// Whether one answers is not tried.
std::vector<pid_t> find_live_processes();

}  // namespace memlab::tools
