#include "interpose/control/listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "interpose/control/protocol.hpp"

namespace memlab::interpose {
namespace {

constexpr int waiting_clients = 16;

/// Whether the folder is there, or could be made, and is nobody else's to change.
bool is_own_folder(const std::string& folder) {
    struct stat status {};
    return (::mkdir(folder.c_str(), S_IRWXU) == 0 || errno == EEXIST) &&
           ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == ::geteuid() && (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

/// After sudo it may be another user's.
const char* own_runtime_folder() {
    const char* const folder = std::getenv("XDG_RUNTIME_DIR");
    struct stat status {};
    return folder != nullptr && ::stat(folder, &status) == 0 && status.st_uid == ::geteuid()
               ? folder
               : nullptr;
}

trace::OwnDescriptor new_socket() {
    return trace::OwnDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool bind_to(const trace::OwnDescriptor& socket, const LiveAddress& address) {
    return socket.number() >= 0 && address.fits() &&
           ::bind(socket.number(), address.get(), address.size()) == 0;
}

}  // namespace

bool Listener::open() {
    const uid_t user = ::geteuid();
    const pid_t process = ::getpid();
    const char* const runtime = own_runtime_folder();
    if (runtime == nullptr || !open_in_folder(socket_folder(runtime, user))) {
        open_in_folder(socket_folder(nullptr, user));
    }
    trace::OwnDescriptor abstract = new_socket();
    if (bind_to(abstract, LiveAddress::abstract(abstract_socket_name(user, process))) &&
        ::listen(abstract.number(), waiting_clients) == 0) {
        sockets_[1] = abstract;
    } else {
        abstract.close();
    }
    return is_open();
}

bool Listener::open_in_folder(const std::string& folder) {
    const std::string path = folder + "/" + socket_file_name(::getpid());
    const std::string unfinished = path + ".new";
    const LiveAddress address = LiveAddress::at(unfinished);
    if (!address.fits() || !is_own_folder(folder)) {
        return false;
    }
    ::unlink(unfinished.c_str());
    trace::OwnDescriptor socket = new_socket();
    struct stat status {};
    if (bind_to(socket, address) && ::chmod(unfinished.c_str(), S_IRUSR | S_IWUSR) == 0 &&
        ::listen(socket.number(), waiting_clients) == 0 &&
        ::lstat(unfinished.c_str(), &status) == 0 &&
        std::rename(unfinished.c_str(), path.c_str()) == 0) {
        sockets_[0] = socket;
        path_ = path;
        device_ = status.st_dev;
        inode_ = status.st_ino;
        return true;
    }
    ::unlink(unfinished.c_str());
    socket.close();
    return false;
}

void Listener::shut_down() {
    for (trace::OwnDescriptor& socket : sockets_) {
        if (socket.check()) {
            ::shutdown(socket.number(), SHUT_RDWR);
        }
    }
    struct stat status {};
    if (!path_.empty() && ::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ &&
        status.st_ino == inode_) {
        ::unlink(path_.c_str());
    }
}

void Listener::close() {
    shut_down();
    close_after_fork();
}

void Listener::close_after_fork() {
    for (trace::OwnDescriptor& socket : sockets_) {
        socket.close();
    }
}

bool Peer::may_ask() const {
    return known && (user == ::geteuid() || user == 0);
}

Peer peer_of(int descriptor) {
    ucred peer{};
    socklen_t size = sizeof peer;
    const bool known = ::getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    return {known, peer.uid};
}

}  // namespace memlab::interpose
