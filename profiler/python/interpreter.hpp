// Locates the CPython interpreter of this process at run time; memlab does not link it.
//
// It is detected during an allocation, as an object on a call stack. Nothing may take the loader's
// lock then, so symbols are read from the object's mapped table. The interpreter functions that a
// capture calls only read a word: they take no lock and do not need the GIL.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/object_symbols.hpp"
#include "profiler/python/layout.hpp"
#include "profiler/python/loop_code.hpp"
#include "profiler/python/objects.hpp"

namespace memlab::profiler::python {

/// The public API used once to verify the frames; only called with the GIL held.
struct PublicApi {
    void* (*thread_frame)(void* thread);  ///< PyThreadState_GetFrame: a new reference, or null
    void* (*frame_back)(void* frame);     ///< a new reference, or null
    void* (*frame_code)(void* frame);     ///< a new reference
    int (*frame_line)(void* frame);
    void* (*attribute)(void* object, const char* name);  ///< a new reference, or null
    const char* (*utf8)(void* text, std::int64_t* size);
    void* (*error)();  ///< borrowed; null when no exception is pending
    void (*clear_error)();
    int (*disable_gc)();  ///< 1 if it was enabled; null in 3.9, as the next one
    int (*enable_gc)();
    void (*release)(void* object);
};

struct Interpreter {
    const Layout* layout = nullptr;
    Types types;

    int (*is_initialized)() = nullptr;   ///< 0 before initialization and once finalization begins
    void* (*thread_state)() = nullptr;   ///< the calling thread's, with or without the GIL
    void* (*running_state)() = nullptr;  ///< equal to thread_state() only while it holds the GIL
    const void* main_interpreter = nullptr;  ///< null if it was not there when it was looked for
    PublicApi api = {};
    const void* list_type = nullptr;

    /// The interpreter's own object (python3 or libpython), whose native frames are hidden in
    /// favour of Python frames. Empty if the interpreter is embedded in an application's object.
    std::uintptr_t code_start = 0;
    std::uintptr_t code_end = 0;

    LoopCode loop;  ///< only where Layout::without_records()

    std::string library;  ///< the shared library that it is in; empty: the main program
};

enum class Search : std::uint8_t {
    found,     ///< `interpreter` is filled in
    unusable,  ///< its frames cannot be read; `why` says so
};

/// Whether the object is a Python interpreter of any version.
bool is_interpreter(const ObjectSymbols& object);

/// Examines the interpreter in the loaded object that contains `address`. Takes no lock. Throws
/// std::bad_alloc.
Search find_interpreter(std::uintptr_t address, Interpreter* interpreter, std::string* why);

/// Keeps the interpreter's library loaded for good. False on failure. Takes the loader's lock.
bool pin(const Interpreter& interpreter);

}  // namespace memlab::profiler::python
