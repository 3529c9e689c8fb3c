// The helper of a process that steps aside by the driver's checkpoint: libmemlab.so, run as a
// program (process/driver_probe.cpp).
#pragma once

namespace memlab::interpose {

/// Serves the socket that is its standard input (helper_protocol.hpp) until the other side has
/// ended. Needs no constructor.
void serve_as_helper();

}  // namespace memlab::interpose
