// The objects that the loader has loaded, by file name: what memlab must make room for announces
// itself by being there.
#pragma once

#include "interpose/driver/function_ref.hpp"

namespace memlab::interpose {

/// Shows each loaded object's file name, without its folder, to `wanted` until that says yes; true
/// when it did. Nothing is shown when no object was loaded since the look that left `*loads`, which
/// is the loader's count of loads and becomes today's; 0: never looked. Takes the lock of
/// the loader's list, which is not held while constructors run: call without any of ours.
bool find_loaded_object(unsigned long long* loads, FunctionRef<bool(const char* file_name)> wanted);

}  // namespace memlab::interpose
