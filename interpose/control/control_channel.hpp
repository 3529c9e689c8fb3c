// The control channel of this process: one thread of memlab's own that answers the requests of
// protocol.hpp, a request at a time.
//
// It waits for nobody: reads and writes do not block, and a reply is made in memory before any of
// it is sent. So what a peer does, or does not, never holds up the program: one that is idle for
// idle_client_ns or takes nothing of a reply for slow_client_ns is dropped, as is one beyond
// max_live_clients. What takes its time is asked for again and again, and others are answered
// meanwhile. While nobody asks, the thread sleeps.
//
// Children of a fork drop what they inherit, and have a channel of their own once they use CUDA.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "interpose/control/listener.hpp"
#include "interpose/control/protocol.hpp"
#include "threads/mutex.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::interpose {

/// What is answered: a JSON document, or a line that says why there is none.
struct Answer {
    std::string document;
    std::string problem;  ///< empty: none
    /// The answer is not there yet: to be called until it returns true, for that. May throw
    /// std::bad_alloc.
    std::function<bool(Answer*)> later = {};
};

/// Thread-safety: all functions, from any thread, except where they say otherwise.
class ControlChannel {
  public:
    /// Answers a request, in the channel's thread. May throw std::bad_alloc.
    using Answerer = void (*)(const Request& request, Answer* answer);

    ControlChannel() = default;
    ControlChannel(const ControlChannel&) = delete;
    ControlChannel& operator=(const ControlChannel&) = delete;

    /// Call once. False: there is no socket or no thread.
    bool start(Answerer answerer) noexcept;

    /// Call at process end: nothing is answered after this, and the socket's file is gone. Waits
    /// for an answer under way, but at most a second. Also called in signal handlers.
    void stop() noexcept;

    /// Call before a fork: waits until no descriptor is being made, at most a fifth of a second.
    /// after_fork_in_parent() follows in the same thread.
    void before_fork() noexcept MEMLAB_UNCHECKED_LOCKS;
    void after_fork_in_parent() noexcept MEMLAB_UNCHECKED_LOCKS;
    /// In the child. Nothing may be called afterwards.
    void close_after_fork() noexcept MEMLAB_UNCHECKED_LOCKS;

  private:
    struct Client {
        trace::OwnDescriptor socket;
        std::size_t received = 0;
        char request[max_request_bytes];
        std::string reply;
        std::size_t sent = 0;
        bool last = false;              ///< to be closed after this reply
        Answer awaited;                 ///< with `later`: the answer to the request before
        std::uint64_t deadline_ns = 0;  ///< when it is dropped

        bool sends() const { return sent < reply.size(); }
        bool waits() const { return awaited.later != nullptr; }
        /// One that is whole, while none is answered.
        bool has_request() const {
            return !sends() && !waits() &&
                   std::string_view(request, received).find('\n') != std::string_view::npos;
        }
    };

    static void* run(void* self);
    void serve();
    bool open_again();
    int timeout_ms(std::uint64_t now_ns) const;
    void accept_clients(int listener);
    void add_client(int descriptor);
    void drop(std::size_t which);
    void drop_late(std::uint64_t now_ns);
    bool advance(Client& client, bool ready);
    bool receive(Client& client);
    bool take_request(Client& client);
    bool send_reply(Client& client);
    void answer(Client& client, std::string_view line);
    bool look_again(Client& client);
    static void make_reply(Client& client, const Answer& answer);
    void close_all();

    Answerer answerer_ = nullptr;
    std::atomic<bool> started_{false};
    std::atomic<bool> stopped_{false};
    threads::Mutex answering_;          ///< held while an answer is made
    threads::Mutex descriptors_;        ///< held while one is made or closed; before answering_
    std::atomic<bool> forking_{false};  ///< the forking thread holds it
    Listener listener_;
    std::unique_ptr<Client>
        clients_[max_live_clients];  ///< the thread's; a slot: under descriptors_
};

/// Answers for this process's session: interpose/answers/, which knows it, defines it.
void answer_request(const Request& request, Answer* answer);

}  // namespace memlab::interpose
