#include "interpose/sharing/memory_socket.hpp"

#include <poll.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "profiler/clock.hpp"

namespace memlab::interpose {

SocketAddress::SocketAddress(const SocketToken& token) {
    constexpr std::string_view prefix("\0memlab-", 8);
    constexpr char digits[] = "0123456789abcdef";
    static_assert(prefix.size() + 2 * std::tuple_size_v<SocketToken> <= sizeof address.sun_path);
    address.sun_family = AF_UNIX;
    char* end = std::copy(prefix.begin(), prefix.end(), address.sun_path);
    for (const unsigned char byte : token) {
        *end++ = digits[byte / 16];
        *end++ = digits[byte % 16];
    }
    size = static_cast<socklen_t>(end - reinterpret_cast<const char*>(&address));
}

MemorySocket::MemorySocket(int descriptor, std::uint64_t deadline_ns)
    : descriptor_(descriptor), deadline_ns_(deadline_ns) {}

MemorySocket::~MemorySocket() {
    if (descriptor_ >= 0) {
        ::close(descriptor_);
    }
}

int MemorySocket::connect_to(const SocketToken& token, std::uint64_t deadline_ns) {
    const SocketAddress to(token);
    // Not blocking: a full queue of connections answers EAGAIN.
    const int descriptor = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    while (descriptor >= 0 &&
           ::connect(descriptor, reinterpret_cast<const sockaddr*>(&to.address), to.size) != 0) {
        if ((errno != EAGAIN && errno != EINTR) || profiler::monotonic_ns() >= deadline_ns) {
            ::close(descriptor);
            return -1;
        }
        ::poll(nullptr, 0, 1);
    }
    return descriptor;
}

bool MemorySocket::peer_is_own(std::int32_t* process) const {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (descriptor_ < 0 || ::getsockopt(descriptor_, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
        peer.uid != ::geteuid()) {
        return false;
    }
    *process = peer.pid;
    return true;
}

bool MemorySocket::wait_for(short events) const {
    for (;;) {
        const std::uint64_t now = profiler::monotonic_ns();
        if (now >= deadline_ns_) {
            return false;
        }
        pollfd waiting{descriptor_, events, 0};
        const auto milliseconds = static_cast<int>((deadline_ns_ - now + 999'999) / 1'000'000);
        const int ready = ::poll(&waiting, 1, milliseconds);
        if (ready > 0) {
            return (waiting.revents & events) != 0;
        }
        if (ready < 0 && errno != EINTR) {
            return false;
        }
    }
}

bool MemorySocket::send_request(const CUipcMemHandle& handle) {
    return wait_for(POLLOUT) && ::send(descriptor_, &handle, sizeof handle,
                                       MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof handle;
}

bool MemorySocket::receive_request(CUipcMemHandle* handle) {
    return wait_for(POLLIN) &&
           ::recv(descriptor_, handle, sizeof *handle, MSG_DONTWAIT) == sizeof *handle;
}

bool MemorySocket::send_parts(const Parts& parts, const int* descriptors) {
    iovec data{const_cast<Parts*>(&parts), sizeof parts};
    alignas(cmsghdr) char control[CMSG_SPACE(Parts::max_parts * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (parts.count != 0) {
        const std::size_t bytes = parts.count * sizeof(int);
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(bytes);
        cmsghdr* header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        std::memcpy(CMSG_DATA(header), descriptors, bytes);
    }
    return wait_for(POLLOUT) &&
           ::sendmsg(descriptor_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof parts;
}

bool MemorySocket::receive_parts(Parts* parts, int (&descriptors)[Parts::max_parts]) {
    iovec data{parts, sizeof *parts};
    alignas(cmsghdr) char control[CMSG_SPACE(Parts::max_parts * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (!wait_for(POLLIN)) {
        return false;
    }
    const ssize_t received = ::recvmsg(descriptor_, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    std::uint32_t count = 0;
    for (cmsghdr* header = received > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
            const std::size_t bytes = header->cmsg_len - CMSG_LEN(0);
            count = static_cast<std::uint32_t>(
                std::min<std::size_t>(bytes / sizeof(int), Parts::max_parts));
            std::memcpy(descriptors, CMSG_DATA(header), count * sizeof(int));
        }
    }
    if (received == sizeof *parts && parts->count == count &&
        (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) == 0) {
        return true;
    }
    for (std::uint32_t i = 0; i < count; ++i) {
        ::close(descriptors[i]);
    }
    return false;
}

}  // namespace memlab::interpose
