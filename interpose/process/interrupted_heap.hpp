// exit() in a signal handler.
#pragma once

namespace memlab::interpose {

/// True when the calling thread is in a signal handler that may have interrupted the heap's own
/// code: memory asked for now may never come, or come from a heap in disorder. Not true of a
/// handler that came while its thread waited in a system call. Async-signal-safe.
bool heap_may_be_interrupted();

}  // namespace memlab::interpose
