// Ends a process whose main thread ended by pthread_exit() and of which only memlab's own threads
// are left: without memlab it would have ended with its last thread. (The C library counts memlab's
// threads, too, and they take no signals, so that not even SIGTERM would end it.)
//
// Only once the main thread has ended a thread watches for that, so other processes pay nothing.
#pragma once

namespace memlab::interpose {

/// Call when memlab starts in this process: watches if the main thread has ended already.
void watch_for_last_thread() noexcept;

/// In a forked child, whose main thread is the calling one, and which has no thread of memlab's.
void forget_threads_after_fork() noexcept;

}  // namespace memlab::interpose
