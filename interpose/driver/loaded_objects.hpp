// Searches the loaded objects by file name: libraries that memlab must adapt to are detected by
// their presence.
#pragma once

#include <string>

#include "interpose/driver/function_ref.hpp"
#include "profiler/object_symbols.hpp"

namespace memlab::interpose {

/// Calls `wanted` with each loaded object's file name, without its folder, until it returns true;
/// returns whether it did. `*loads` is the loader's count of loads at the previous search (0: none)
/// and is updated; if it has not changed nothing is searched. Takes the lock of the loader's list,
/// which is not held while constructors run: call without any of memlab's locks.
bool find_loaded_object(unsigned long long* loads, FunctionRef<bool(const char* file_name)> wanted);

/// Calls `wanted` with the symbols of each loaded object whose file name, without its folder,
/// begins with `prefix`, until it returns true; returns whether it did. Locks as
/// find_loaded_object().
bool find_loaded_symbols(const char* prefix,
                         FunctionRef<bool(const profiler::ObjectSymbols& symbols)> wanted);

/// The path of the first loaded object whose file name begins with `prefix`, as the loader has it;
/// empty: there is none. Locks as find_loaded_object(). May throw std::bad_alloc.
std::string loaded_object_path(const char* prefix);

/// The path of the loaded object that this address is in: as the loader has it, the program's is
/// /proc/self/exe's; empty: none. Locks as find_loaded_object(). May throw std::bad_alloc.
std::string loaded_object_at(const void* address);

}  // namespace memlab::interpose
