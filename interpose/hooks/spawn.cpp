// Interposes vfork() and posix_spawn(), so that the pools release unused memory when the program
// starts a child, which may need it. (fork() runs a handler of pthread_atfork(), these run none. A
// child started inside the C library, as by system() or popen(), or by a raw system call is not
// noticed.) They run in processes without CUDA as well, where they cost one look-up.
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/process/session.hpp"

namespace memlab::interpose {
namespace {

int no_vfork() {
    errno = ENOSYS;
    return -1;
}

using Spawn = int(pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
                  char* const*, char* const*);
constinit std::atomic<Spawn*> real_spawn{nullptr};
constinit std::atomic<Spawn*> real_spawnp{nullptr};
constinit std::atomic<int (*)()> real_vfork{nullptr};

template <class... Arguments>
int spawn(std::atomic<Spawn*>& known, const char* name, Arguments... arguments) {
    Spawn* const real = find_once(known, name);
    Session::child_starts();
    return real != nullptr ? real(arguments...) : ENOSYS;
}

}  // namespace
}  // namespace memlab::interpose

namespace mi = memlab::interpose;

// Returns where the stub jumps to.
extern "C" __attribute__((visibility("hidden"))) int (*memlab_before_vfork())() {
    int (*const real)() = mi::find_once(mi::real_vfork, "vfork");
    mi::Session::child_starts();
    return real != nullptr ? real : mi::no_vfork;
}

MEMLAB_EXPORT int posix_spawn(pid_t* process, const char* path,
                              const posix_spawn_file_actions_t* actions,
                              const posix_spawnattr_t* attributes, char* const* arguments,
                              char* const* environment) {
    return mi::spawn(mi::real_spawn, "posix_spawn", process, path, actions, attributes, arguments,
                     environment);
}

MEMLAB_EXPORT int posix_spawnp(pid_t* process, const char* file,
                               const posix_spawn_file_actions_t* actions,
                               const posix_spawnattr_t* attributes, char* const* arguments,
                               char* const* environment) {
    return mi::spawn(mi::real_spawnp, "posix_spawnp", process, file, actions, attributes, arguments,
                     environment);
}
