// Lets forced unwinding pass through memlab's frames. pthread_exit() and pthread_cancel() end a
// thread by unwinding its stack, including memlab's frames if that happens in a driver callback, in
// a signal handler, or in the driver itself. The system's unwinder calls the frames' personality
// routine, and libmemlab.so's belongs to its own static C++ runtime, which cannot handle another
// unwinder's state and would abort. So forced unwinding treats memlab's frames like those of a C
// library: no cleanup runs. Where memlab holds a lock across code that may be unwound, it uses
// NoCancellation.
#include <unwind.h>

extern "C" {

// With --wrap the linker redirects every reference to __gxx_personality_v0 here.
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
