// The pitch that cuMemAllocPitch would choose.
#pragma once

#include <cstddef>

namespace memlab::interpose {

class Memory;

/// The pitch and size in bytes of a width x height allocation on the current device, by the
/// driver's own rule. False where that rule is not known or only an error fits the arguments: then
/// the driver must answer.
bool pitched_size(Memory& memory, std::size_t width, std::size_t height, unsigned element_size,
                  std::size_t* pitch, std::size_t* bytes);

}  // namespace memlab::interpose
