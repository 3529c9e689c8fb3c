// What Ctrl-C leaves behind: nothing. SIGINT, SIGTERM and SIGHUP remove the file that is not
// finished, wipe the line that is on the terminal for a while, and then end the process as if
// nobody had been asked, so that the shell sees how it ended. Who ignores them (nohup) goes on
// ignoring them.
#pragma once

#include <csignal>

namespace memlab::report {

/// From now on this file goes when a signal ends the process; null: none does any more. One at a
/// time; the text must stay. Thread-safety: none.
void remove_when_ended(const char* path);

/// The same for the line that the cursor of this terminal is on; -1: none.
void wipe_when_ended(int terminal);

/// While it lives, no signal ends this thread's work. With `all` any other waits too: for threads
/// that are started meanwhile, and which no signal shall meet.
class SignalsHeld {
  public:
    enum class Which { ending, all };
    explicit SignalsHeld(Which which = Which::ending);
    ~SignalsHeld();
    SignalsHeld(const SignalsHeld&) = delete;
    SignalsHeld& operator=(const SignalsHeld&) = delete;

  private:
    sigset_t before_{};
};

/// Goes back to the begin of the line and empties it.
inline constexpr char wiping[] = "\r\x1b[K";

}  // namespace memlab::report
