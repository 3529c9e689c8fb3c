// Where other profilers subscribe to CUPTI. memlab, if it is the subscriber, makes way first; then
// the call goes to CUPTI as it was made. Profilers that link libcupti bind these symbols here,
// those that open it get them from dlsym. Without this, whoever came second would be
// refused, and kineto asks only once.
//
// CUPTI's own types are not needed (its header does not go with cuda_abi.hpp): the arguments are
// passed on as they are, and only the number of pointers matters.
#include <dlfcn.h>

#include <array>
#include <atomic>
#include <cstring>

#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"

// CUptiResult is an enumeration.
MEMLAB_EXPORT int cuptiSubscribe(void* subscriber, void* callback, void* user);
MEMLAB_EXPORT int cuptiSubscribe_v2(void* subscriber, void* callback, void* user, void* parameters);
MEMLAB_EXPORT int cuptiActivityRegisterCallbacks(void* request, void* complete);

namespace mi = memlab::interpose;

namespace {

constexpr int cupti_not_initialized = 15;  // CUPTI_ERROR_NOT_INITIALIZED

/// What dlsym last answered for each of the names: the function that its caller meant.
std::array<std::atomic<void*>, mi::subscribing_names.size()> found_by_dlsym;

void make_way() {
    const mi::InsideMemlab inside;
    if (mi::Session* session = mi::Session::current()) {
        session->cupti().make_way();
    }
}

/// The function of this name in the libcupti that the caller's own library uses. `caller` is a
/// return address: two copies of CUPTI may be in one process.
void* find_real(std::size_t name, const void* caller) {
    if (void* const known = found_by_dlsym[name].load(std::memory_order_acquire)) {
        return known;
    }
    const char* const symbol = mi::subscribing_names[name].data();
    Dl_info info{};
    if (dladdr(caller, &info) != 0 && info.dli_fname != nullptr) {
        if (void* const library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD)) {
            void* const found = mi::real_dlsym()(library, symbol);
            if (found != nullptr && !mi::is_own_export(found)) {
                return found;
            }
        }
    }
    return mi::real_dlsym()(RTLD_NEXT, symbol);
}

template <class Function, class... Arguments>
int pass_on(Function /*type*/, std::size_t name, const void* caller, Arguments... arguments) {
    make_way();
    const auto real = reinterpret_cast<Function>(find_real(name, caller));
    return real != nullptr ? real(arguments...) : cupti_not_initialized;
}

}  // namespace

// The same through dlsym (hooks/resolve.cpp): remembers what it found, and answers with the hook.
void* memlab::interpose::subscribing_hook(const char* symbol, void* found) {
    static void* const hooks[] = {reinterpret_cast<void*>(&::cuptiSubscribe),
                                  reinterpret_cast<void*>(&::cuptiSubscribe_v2),
                                  reinterpret_cast<void*>(&::cuptiActivityRegisterCallbacks)};
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
    return pass_on(&::cuptiSubscribe, 0, __builtin_return_address(0), subscriber, callback, user);
}

int cuptiSubscribe_v2(void* subscriber, void* callback, void* user, void* parameters) {
    return pass_on(&::cuptiSubscribe_v2, 1, __builtin_return_address(0), subscriber, callback, user,
                   parameters);
}

int cuptiActivityRegisterCallbacks(void* request, void* complete) {
    return pass_on(&::cuptiActivityRegisterCallbacks, 2, __builtin_return_address(0), request,
                   complete);
}
