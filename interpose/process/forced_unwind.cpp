// pthread_exit() and pthread_cancel() end a thread by unwinding its stack by force, through
// whatever frames are there: memlab's too, when that happens in a callback that the driver calls,
// in a signal handler, or in the driver itself. The system's unwinder then asks the frames'
// personality routine, and libmemlab.so's belongs to a C++ runtime of its own, which cannot handle
// another unwinder's state and would abort the process. So a forced unwinding passes memlab's
// frames as it passes those of a library written in C: nothing of them is run. Where memlab holds a
// lock over something that may be unwound, NoCancellation stands.
#include <unwind.h>

extern "C" {

// The linker gives every frame's reference to __gxx_personality_v0 this one (--wrap).
_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context);
_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context) {
    if ((actions & _UA_FORCE_UNWIND) != 0) {
        return _URC_CONTINUE_UNWIND;
    }
    return __real___gxx_personality_v0(version, actions, exception_class, exception, context);
}
}
