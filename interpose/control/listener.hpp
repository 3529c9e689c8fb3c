// The sockets that a process listens on for its control channel: one in a folder of its user's, and
// an abstract one. The folder has to be the user's own, with mode 0700, and no link; else there is
// none in it. The file appears once somebody listens, in place of one that an earlier process of
// this id has left.
//
// The program may close the descriptors; what then has their numbers is left alone.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <string>

#include "trace/own_descriptor.hpp"

namespace memlab::interpose {

/// Thread-safety: none.
class Listener {
  public:
    static constexpr std::size_t max_sockets = 2;

    /// False: on none of them. May throw std::bad_alloc.
    bool open();

    /// Of each: its number, or -1 where there is none, or the program has closed it.
    int descriptor(std::size_t which) {
        return sockets_[which].check() ? sockets_[which].number() : -1;
    }
    bool is_open() { return descriptor(0) >= 0 || descriptor(1) >= 0; }

    /// The path of the socket; empty: there is only the abstract one.
    const std::string& path() const { return path_; }

    /// Wakes who waits for connections, which end; removes the file. Async-signal-safe.
    void shut_down();
    void close();
    /// In a forked child, which has the descriptors, too: the file is its parent's.
    void close_after_fork();

  private:
    bool open_in_folder(const std::string& folder);

    std::array<trace::OwnDescriptor, max_sockets> sockets_;
    std::string path_;
    dev_t device_ = 0;  ///< of the file
    ino_t inode_ = 0;
};

/// Who is at the other end of a connection, and whether it may ask: this process's user, and root.
/// All users that this user namespace does not have are one, nobody: they may not, unless this
/// process is nobody's, too.
struct Peer {
    bool known = false;
    uid_t user = 0;

    bool may_ask() const;
};
Peer peer_of(int descriptor);

}  // namespace memlab::interpose
