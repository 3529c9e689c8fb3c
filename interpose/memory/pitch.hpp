// Computes the pitch that cuMemAllocPitch would choose.
#pragma once

#include <cstddef>

namespace memlab::interpose {

class Memory;

/// The pitch and size in bytes of a width x height allocation on the current device, as the driver
/// computes them. False for invalid arguments or an unknown alignment: then the driver must handle
/// the call.
bool pitched_size(Memory& memory, std::size_t width, std::size_t height, unsigned element_size,
                  std::size_t* pitch, std::size_t* bytes);

}  // namespace memlab::interpose
