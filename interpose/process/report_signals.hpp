// MEMLAB_REPORT_ON: reports on request, and before a signal ends the process.
//
// The program's own handling comes first: a handler is set only where the signal's disposition is
// the default one, and not again once the program has set another. It only wakes a thread, which
// writes the report: the handler may have interrupted anything, memlab too. For a signal that ends
// the process it waits for the thread, for five seconds at most, restores the default disposition
// and raises the signal again: the process ends as it would have.
//
// Children of fork inherit the handler. Until they start a session of their own it only does what
// the default disposition does. exec resets it.
#pragma once

#include <cstdint>

namespace memlab::interpose {

/// Starts the thread and sets the handlers. Call once in a process, when its session starts.
/// `signals`: as Settings::report_signals. `write` is called on the thread, with those that have
/// come since its last call. False: there is no thread to do it.
bool report_on_signals(std::uint64_t signals, void (*write)(std::uint64_t signals));

/// Whether the program goes on after the signal, if a report was asked for.
bool goes_on_after(int signal) noexcept;

/// The report before the end is written once: true for the first caller, who has to write it.
bool take_final_report() noexcept;

/// In a forked child: its parent's thread does not exist here.
void forget_report_signals_after_fork() noexcept;

}  // namespace memlab::interpose
