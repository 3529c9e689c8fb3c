// The session's control channel, from the start of CUDA to the end of the process.
#include <cstdlib>

#include "interpose/control/control_channel.hpp"
#include "interpose/control/oom_hold.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/process/session.hpp"

namespace memlab::interpose {

/// The session must be published: an answer looks for it.
void Session::start_answering() {
    oom_hold().set(settings_.hold_on_oom);
    if (!settings_.live) {
        return;
    }
    if (!channel_.start(&answer_request)) {
        debug("no control channel: no socket or no thread could be created");
        return;
    }
    // Registered late, so that it runs before CUDA's handlers: an answer must not call a driver
    // that is shutting down.
    std::atexit(&Session::stop_answering);
}

void Session::stop_answering() {
    if (Session* session = current()) {
        session->channel_.stop();
    }
}

}  // namespace memlab::interpose
