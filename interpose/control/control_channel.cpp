#include "interpose/control/control_channel.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <string_view>
#include <utility>

#include "interpose/driver/reentrancy.hpp"
#include "profiler/clock.hpp"
#include "profiler/lock_until.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t max_wait_for_answer_ns = 1'000'000'000;
constexpr std::uint64_t max_wait_to_fork_ns = 200'000'000;
constexpr std::uint64_t millisecond = 1'000'000;
constexpr int pause_ms = 10;      // where there are no descriptors or no memory left
constexpr int look_again_ms = 2;  // whether an answer is there
constexpr int most_openings = 8;  // the program may close the sockets again and again

/// "error TEXT\n", in one line and within max_error_bytes.
std::string error_reply(std::string_view text) {
    std::string reply(error_word);
    reply += text.substr(0, max_error_bytes - error_word.size() - 1);
    std::replace(reply.begin(), reply.end(), '\n', ' ');
    return reply + '\n';
}

/// Sends what goes at once, to one that is closed then.
void refuse(int descriptor, std::string_view text) {
    const std::string reply = error_reply(text);
    static_cast<void>(::send(descriptor, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace

bool ControlChannel::start(Answerer answerer) noexcept {
    answerer_ = answerer;
    try {
        if (listener_.open() && threads::start_own_thread(&ControlChannel::run, this)) {
            started_.store(true);
            return true;
        }
    } catch (const std::bad_alloc&) {
    }
    listener_.close();
    return false;
}

void ControlChannel::stop() noexcept {
    if (!started_.load() || stopped_.exchange(true)) {
        return;
    }
    if (profiler::lock_until(descriptors_, profiler::monotonic_ns() + max_wait_to_fork_ns)) {
        listener_.shut_down();
        descriptors_.unlock();
    }
    if (profiler::lock_until(answering_, profiler::monotonic_ns() + max_wait_for_answer_ns)) {
        answering_.unlock();
    }
}

void ControlChannel::before_fork() noexcept {
    forking_.store(
        profiler::lock_until(descriptors_, profiler::monotonic_ns() + max_wait_to_fork_ns));
}

void ControlChannel::after_fork_in_parent() noexcept {
    if (forking_.exchange(false)) {
        descriptors_.unlock();
    }
}

void ControlChannel::close_after_fork() noexcept {
    listener_.close_after_fork();
    for (const std::unique_ptr<Client>& client : clients_) {
        if (client != nullptr) {
            client->socket.close();
        }
    }
}

void* ControlChannel::run(void* self) {
    const InsideMemlab inside;
    static_cast<ControlChannel*>(self)->serve();
    return nullptr;
}

void ControlChannel::serve() {
    for (int openings = 1; !stopped_.load();) {
        if (!listener_.is_open() && (openings++ == most_openings || !open_again())) {
            break;
        }
        constexpr std::size_t most = Listener::max_sockets + max_live_clients;
        pollfd waiting[most];
        for (std::size_t i = 0; i < Listener::max_sockets; ++i) {
            waiting[i] = {listener_.descriptor(i), POLLIN, 0};
        }
        bool buffered = false;
        for (std::size_t i = 0; i < max_live_clients; ++i) {
            Client* const client = clients_[i].get();
            const bool open = client != nullptr && client->socket.check();
            buffered = buffered || (open && client->has_request());
            const bool waits = open && client->waits();  // its end is seen in any case
            waiting[Listener::max_sockets + i] = {
                open ? client->socket.number() : -1,
                static_cast<short>(waits                     ? 0
                                   : open && client->sends() ? POLLOUT
                                                             : POLLIN),
                0};
        }
        if (::poll(waiting, most, buffered ? 0 : timeout_ms(profiler::monotonic_ns())) < 0) {
            ::poll(nullptr, 0, pause_ms);
        }
        for (std::size_t i = 0; i < max_live_clients && !stopped_.load(); ++i) {
            Client* const client = clients_[i].get();
            const bool ready = waiting[Listener::max_sockets + i].revents != 0;
            if (client != nullptr && (ready || client->has_request() || client->waits()) &&
                !advance(*client, ready)) {
                drop(i);
            }
        }
        drop_late(profiler::monotonic_ns());
        for (std::size_t i = 0; i < Listener::max_sockets && !stopped_.load(); ++i) {
            if (waiting[i].revents != 0) {
                accept_clients(listener_.descriptor(i));
            }
        }
    }
    close_all();
}

/// The program has closed the sockets.
bool ControlChannel::open_again() {
    const threads::LockGuard lock(descriptors_);
    try {
        listener_.close();
        return listener_.open();
    } catch (const std::bad_alloc&) {
        return false;
    }
}

int ControlChannel::timeout_ms(std::uint64_t now_ns) const {
    std::uint64_t next = std::numeric_limits<std::uint64_t>::max();
    for (const std::unique_ptr<Client>& client : clients_) {
        if (client != nullptr && client->waits()) {
            return look_again_ms;
        }
        next = client != nullptr ? std::min(next, client->deadline_ns) : next;
    }
    if (next == std::numeric_limits<std::uint64_t>::max()) {
        return -1;
    }
    return next <= now_ns ? 0 : static_cast<int>((next - now_ns) / millisecond + 1);
}

void ControlChannel::accept_clients(int listener) {
    for (std::size_t i = 0; i < max_live_clients && listener >= 0; ++i) {
        const threads::LockGuard lock(descriptors_);
        const int descriptor = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (descriptor >= 0) {
            add_client(descriptor);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            ::poll(nullptr, 0, pause_ms);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

/// The lock of descriptors is held.
void ControlChannel::add_client(int descriptor) {
    trace::OwnDescriptor socket(descriptor);
    try {
        const Peer peer = peer_of(socket.number());
        auto* const free = std::find(std::begin(clients_), std::end(clients_), nullptr);
        if (!peer.may_ask()) {
            refuse(socket.number(), "this process belongs to user " + std::to_string(::geteuid()) +
                                        ": only they and root can ask it");
        } else if (free == std::end(clients_)) {
            refuse(socket.number(), "16 others are connected to this process, its most");
        } else {
            auto client = std::make_unique<Client>();
            client->socket = socket;
            client->deadline_ns = profiler::monotonic_ns() + idle_client_ns;
            *free = std::move(client);
            return;
        }
    } catch (const std::bad_alloc&) {  // as if it had hung up
    }
    socket.close();
}

void ControlChannel::drop(std::size_t which) {
    const threads::LockGuard lock(descriptors_);
    clients_[which]->socket.close();
    clients_[which].reset();
}

void ControlChannel::drop_late(std::uint64_t now_ns) {
    for (std::size_t i = 0; i < max_live_clients; ++i) {
        Client* const client = clients_[i].get();
        if (client != nullptr &&
            ((client->deadline_ns <= now_ns && !client->waits()) || !client->socket.check())) {
            drop(i);
        }
    }
}

/// Does what can be done without waiting: one request at most. `ready`: poll() says so. False: it
/// is to be dropped.
bool ControlChannel::advance(Client& client, bool ready) {
    if (!client.socket.check()) {
        return false;
    }
    if (client.waits()) {
        return !ready && look_again(client);
    }
    if (client.sends()) {
        return send_reply(client);
    }
    if (ready && !client.has_request() && !receive(client)) {
        return false;
    }
    return client.received < sizeof client.request && !client.has_request() ? true
                                                                            : take_request(client);
}

bool ControlChannel::receive(Client& client) {
    const ssize_t got = ::recv(client.socket.number(), client.request + client.received,
                               sizeof client.request - client.received, MSG_DONTWAIT);
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    client.received += static_cast<std::size_t>(got);
    return true;
}

/// Answers the first request of what was received, which is whole, or too long.
bool ControlChannel::take_request(Client& client) {
    const std::string_view received(client.request, client.received);
    const std::size_t length = received.find('\n');
    client.sent = 0;
    try {
        if (length == std::string_view::npos) {
            client.last = true;
            client.reply = error_reply("a request has at most 4096 bytes");
        } else {
            answer(client, received.substr(0, length));
            client.received -= length + 1;
            std::memmove(client.request, client.request + length + 1, client.received);
        }
    } catch (const std::bad_alloc&) {
        return false;
    }
    client.deadline_ns = profiler::monotonic_ns() + slow_client_ns;
    return client.waits() || send_reply(client);
}

/// False: it is to be dropped.
bool ControlChannel::look_again(Client& client) {
    try {
        const threads::LockGuard lock(answering_);
        if (stopped_.load() || !client.awaited.later(&client.awaited)) {
            return true;
        }
        const Answer answer = std::exchange(client.awaited, {});
        make_reply(client, answer);
    } catch (const std::bad_alloc&) {
        return false;
    }
    client.deadline_ns = profiler::monotonic_ns() + slow_client_ns;
    return send_reply(client);
}

void ControlChannel::answer(Client& client, std::string_view line) {
    Request request;
    Answer answer;
    answer.problem = parse_request(line, &request);
    if (answer.problem.empty()) {
        const threads::LockGuard lock(answering_);
        if (stopped_.load()) {
            answer.problem = "the process ends";
        } else {
            answerer_(request, &answer);
        }
    }
    if (answer.later != nullptr) {
        client.awaited = std::move(answer);
    } else {
        make_reply(client, answer);
    }
}

void ControlChannel::make_reply(Client& client, const Answer& answer) {
    if (!answer.problem.empty()) {
        client.reply = error_reply(answer.problem);
    } else if (answer.document.size() > max_reply_bytes) {
        client.reply = error_reply("the reply is too large");
    } else {
        client.reply = std::string(ok_word)
                           .append(std::to_string(answer.document.size()))
                           .append("\n")
                           .append(answer.document);
    }
}

bool ControlChannel::send_reply(Client& client) {
    const ssize_t sent = ::send(client.socket.number(), client.reply.data() + client.sent,
                                client.reply.size() - client.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
        return errno == EAGAIN || errno == EINTR;
    }
    client.sent += static_cast<std::size_t>(sent);
    const std::uint64_t now = profiler::monotonic_ns();
    if (client.sends()) {
        client.deadline_ns = sent != 0 ? now + slow_client_ns : client.deadline_ns;
        return true;
    }
    client.reply = std::string();
    client.sent = 0;
    client.deadline_ns = now + idle_client_ns;
    return !client.last;
}

void ControlChannel::close_all() {
    for (std::size_t i = 0; i < max_live_clients; ++i) {
        if (clients_[i] != nullptr) {
            drop(i);
        }
    }
    const threads::LockGuard lock(descriptors_);
    listener_.close();
}

}  // namespace memlab::interpose
