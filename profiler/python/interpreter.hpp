// The CPython interpreter of this process, found through the loader and never linked.
//
// It is found on the way of an allocation, by the object that a call stack leads through, in which
// nothing may wait for the loader's lock: the symbols are read from the object's own table. What a
// capture calls afterwards reads a word and takes no lock: none of it needs the GIL.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/object_symbols.hpp"
#include "profiler/python/layout.hpp"
#include "profiler/python/objects.hpp"

namespace memlab::profiler::python {

/// The public API that the frames are compared with once; called only with the GIL held.
struct PublicApi {
    void* (*thread_frame)(void* thread);  ///< PyThreadState_GetFrame: a new reference, or null
    void* (*frame_back)(void* frame);     ///< a new reference, or null
    void* (*frame_code)(void* frame);     ///< a new reference
    int (*frame_line)(void* frame);
    void* (*attribute)(void* object, const char* name);  ///< a new reference, or null
    const char* (*utf8)(void* text, std::int64_t* size);
    void* (*error)();  ///< borrowed; null when no exception is pending
    void (*clear_error)();
    int (*collector_off)();  ///< 1 when it was on
    int (*collector_on)();
    void (*release)(void* object);
};

struct Interpreter {
    const Layout* layout = nullptr;
    Types types;

    int (*is_initialized)() = nullptr;   ///< 0 before the start and from its end on
    void* (*thread_state)() = nullptr;   ///< the calling thread's, with or without the GIL
    void* (*running_state)() = nullptr;  ///< equal to that only while the thread has the GIL
    void* (*main_interpreter)() = nullptr;
    PublicApi api = {};

    /// Where the interpreter's own C code lies, when it is a binary of its own: its frames between
    /// Python frames say nothing. Empty for an interpreter that is part of an application.
    std::uintptr_t code_start = 0;
    std::uintptr_t code_end = 0;

    std::string library;  ///< what it is part of, if that can be unloaded; else empty
};

enum class Search : std::uint8_t {
    found,     ///< `interpreter` is filled in
    unusable,  ///< there is one whose frames cannot be read; `why` says so
};

/// Whether the object is a Python interpreter, of whatever version.
bool is_interpreter(const ObjectSymbols& object);

/// That of the object which `address` lies in; it must be loaded, and be one. Takes no lock. Throws
/// std::bad_alloc.
Search find_interpreter(std::uintptr_t address, Interpreter* interpreter, std::string* why);

/// Keeps the interpreter's library loaded from now on. False when that cannot be. Takes the
/// loader's lock.
bool pin(const Interpreter& interpreter);

}  // namespace memlab::profiler::python
