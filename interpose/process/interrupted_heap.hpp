// Detects exit() in a signal handler that interrupted the program's heap (malloc).
#pragma once

namespace memlab::interpose {

/// True when the calling thread is in a signal handler that may have interrupted the heap's own
/// code: allocating could then deadlock or corrupt the heap. False for a handler that interrupted a
/// waiting system call. Async-signal-safe.
bool heap_may_be_interrupted();

}  // namespace memlab::interpose
