// The other end of the helper (helper_program.hpp): starts it when it is needed first, asks it, and
// starts another one when it is gone.
//
// The helper is no child of this process's: a child of a child that has ended, so that no wait() of
// the program's sees it, and no signal comes of it. It has none of the program's descriptors, its
// own session, and ends with this process. Where orphans come back to this process (it is the first
// one of its pid namespace, or a subreaper) the program would see it: there is none then.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "interpose/moving/helper_protocol.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::interpose {

/// Thread-safety: of one thread, except close_after_fork().
class Helper {
  public:
    /// `stopping`: the process ends, and nothing is waited for.
    explicit Helper(const std::atomic<bool>& stopping) : stopping_(stopping) {}
    Helper(const Helper&) = delete;
    Helper& operator=(const Helper&) = delete;

    /// Why there can be none; empty: there is one. The first time it takes the loader's lock: call
    /// while the gate is open. May throw std::bad_alloc.
    std::string start();

    static constexpr std::uint64_t forever = ~std::uint64_t{0};
    /// False: it is gone, or did not answer in so long, and is given up: what it was told may be
    /// under way, done or not.
    bool ask(HelperVerb verb, HelperReply* reply, std::uint64_t max_wait_ns,
             std::uint32_t timeout_ms = 0, const std::string& text = {}) noexcept;

    /// 0: there is none.
    pid_t process() const { return process_.load(); }

    /// In a forked child. Async-signal-safe.
    void close_after_fork() noexcept;

  private:
    bool find_files();
    std::string start_process();
    void give_up() noexcept;

    const std::atomic<bool>& stopping_;
    trace::OwnDescriptor socket_;
    std::atomic<pid_t> process_{0};
    std::string driver_file_;
    std::string own_file_;
};

/// What is missing for the driver to let a process of this user's checkpoint this one, as far as
/// the system tells; empty: nothing that it tells of. May throw std::bad_alloc.
std::string missing_right();

}  // namespace memlab::interpose
