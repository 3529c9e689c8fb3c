// Interposes CUPTI's subscribe functions, so that another profiler can subscribe: memlab, if it is
// the subscriber, unsubscribes first and then forwards the call unchanged. The same goes for the
// functions that set up activities, which need no subscription: they belong to the process, or
// since 13.3 cannot be mixed with a shared subscription. Profilers that link libcupti bind these
// symbols, those that open it get them from dlsym. Without this the second subscriber would be
// refused, and kineto tries only once. A subscriber that allows for several may subscribe beside
// memlab where CUPTI supports that (since 13.3).
//
// CUPTI's types are not needed (its header conflicts with cuda_abi.hpp): the arguments are
// forwarded as they are, and only the number of pointers matters.

#include <array>
#include <atomic>
#include <cstring>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"

// CUptiResult is an enumeration; int has the same ABI.
MEMLAB_EXPORT int cuptiSubscribe(void* subscriber, void* callback, void* user);
MEMLAB_EXPORT int cuptiSubscribe_v2(void* subscriber, void* callback, void* user, void* parameters);
MEMLAB_EXPORT int cuptiActivityRegisterCallbacks(void* request, void* complete);
MEMLAB_EXPORT int cuptiActivityEnable(int kind);
MEMLAB_EXPORT int cuptiActivityEnableContext(void* context, int kind);
MEMLAB_EXPORT int cuptiActivitySetAttribute(int attribute, std::size_t* size, void* value);
MEMLAB_EXPORT int cuptiActivitySetAttribute_v2(void* subscriber, int attribute, std::size_t* size,
                                               void* value);

namespace mi = memlab::interpose;

namespace {

constexpr int cupti_not_initialized = 15;  // CUPTI_ERROR_NOT_INITIALIZED

/// The last result of dlsym for each of the names: the function that its caller wants.
std::array<std::atomic<void*>, mi::subscribing_names.size()> found_by_dlsym;

void yield_subscription() {
    const mi::InsideMemlab inside;
    if (mi::Session* session = mi::Session::current()) {
        session->cupti().yield_subscription();
    }
}

/// The program sets up activities: memlab leaves CUPTI to it, now or when it would subscribe.
void leave_activities() {
    mi::activities_of_program.store(true, std::memory_order_relaxed);
    yield_subscription();
}

/// The function of this name in the libcupti that the caller's library uses. `caller` is a return
/// address: a process may contain two copies of CUPTI.
void* find_real(std::size_t name, const void* caller) {
    if (void* const known = found_by_dlsym[name].load(std::memory_order_acquire)) {
        return known;
    }
    const char* const symbol = mi::subscribing_names[name].data();
    void* const found = mi::definition_for(mi::containing_object(caller), symbol);
    return found != nullptr ? found : mi::find_without_memlab(symbol);
}

/// Whether a subscriber with these parameters of cuptiSubscribe_v2 can subscribe beside memlab.
bool can_subscribe_beside(const void* parameters) {
    constexpr std::size_t allow_position = 4 * sizeof(void*);  // SubscriberParameters
    std::size_t size = 0;
    if (parameters == nullptr) {
        return false;
    }
    std::memcpy(&size, parameters, sizeof(size));
    const mi::InsideMemlab inside;
    mi::Session* const session = mi::Session::current();
    return size > allow_position && static_cast<const char*>(parameters)[allow_position] != 0 &&
           session != nullptr && session->cupti().shares_with_others();
}

template <class Function, class... Arguments>
int forward_call(Function /*type*/, std::size_t name, const void* caller, Arguments... arguments) {
    const auto real = reinterpret_cast<Function>(find_real(name, caller));
    return real != nullptr ? real(arguments...) : cupti_not_initialized;
}

}  // namespace

// For lookups through dlsym (hooks/resolve.cpp): stores the real function and returns the hook.
void* memlab::interpose::subscribing_hook(const char* symbol, void* found) {
    static void* const hooks[] = {reinterpret_cast<void*>(&::cuptiSubscribe),
                                  reinterpret_cast<void*>(&::cuptiSubscribe_v2),
                                  reinterpret_cast<void*>(&::cuptiActivityRegisterCallbacks),
                                  reinterpret_cast<void*>(&::cuptiActivityEnable),
                                  reinterpret_cast<void*>(&::cuptiActivityEnableContext),
                                  reinterpret_cast<void*>(&::cuptiActivitySetAttribute),
                                  reinterpret_cast<void*>(&::cuptiActivitySetAttribute_v2)};
    static_assert(std::size(hooks) == subscribing_names.size());
    for (std::size_t i = 0; i < subscribing_names.size(); ++i) {
        if (subscribing_names[i] == symbol) {
            if (!is_own_export(found)) {
                found_by_dlsym[i].store(found, std::memory_order_release);
            }
            return hooks[i];
        }
    }
    return found;
}

int cuptiSubscribe(void* subscriber, void* callback, void* user) {
    yield_subscription();
    return forward_call(&::cuptiSubscribe, 0, __builtin_return_address(0), subscriber, callback,
                        user);
}

int cuptiSubscribe_v2(void* subscriber, void* callback, void* user, void* parameters) {
    if (!can_subscribe_beside(parameters)) {
        yield_subscription();
    }
    return forward_call(&::cuptiSubscribe_v2, 1, __builtin_return_address(0), subscriber, callback,
                        user, parameters);
}

int cuptiActivityRegisterCallbacks(void* request, void* complete) {
    leave_activities();
    return forward_call(&::cuptiActivityRegisterCallbacks, 2, __builtin_return_address(0), request,
                        complete);
}

int cuptiActivityEnable(int kind) {
    leave_activities();
    return forward_call(&::cuptiActivityEnable, 3, __builtin_return_address(0), kind);
}

int cuptiActivityEnableContext(void* context, int kind) {
    leave_activities();
    return forward_call(&::cuptiActivityEnableContext, 4, __builtin_return_address(0), context,
                        kind);
}

int cuptiActivitySetAttribute(int attribute, std::size_t* size, void* value) {
    leave_activities();
    return forward_call(&::cuptiActivitySetAttribute, 5, __builtin_return_address(0), attribute,
                        size, value);
}

// Before it subscribes a profiler sets what only the first subscriber can.
int cuptiActivitySetAttribute_v2(void* subscriber, int attribute, std::size_t* size, void* value) {
    if (subscriber == nullptr) {
        leave_activities();
    }
    return forward_call(&::cuptiActivitySetAttribute_v2, 6, __builtin_return_address(0), subscriber,
                        attribute, size, value);
}
