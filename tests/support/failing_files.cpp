// Preloaded into a program whose files fail: the nth call of one kind that concerns a file below a
// folder fails, does a part of its work, or none.
//
// FAILING_FILES=CALL:N:HOW:FOLDER:TOLD, HOW an errno's number, "zero" (0 bytes are written) or
// "part" (half of them); a disk that failed with an errno fails from then on, except for EINTR.
// TOLD is a file that is made when a call has failed.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

struct Plan {
    std::string call;
    long left = -1;
    std::string how;
    std::string folder;
    std::string told;

    Plan() {
        const char* text = std::getenv("FAILING_FILES");
        if (text == nullptr) {
            return;
        }
        std::string number;
        std::string* const parts[] = {&call, &number, &how, &folder, &told};
        std::string_view rest = text;
        for (std::string* part : parts) {
            const std::size_t end = std::min(rest.find(':'), rest.size());
            *part = rest.substr(0, end);
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        left = std::atol(number.c_str());
    }
};

Plan& plan() {
    static Plan made;
    return made;
}

/// What becomes of a call. Sets errno.
enum class Fate { good, fails, zero, part };

Fate fate(std::string_view call, const char* path) {
    Plan& of = plan();
    if (of.call != call || path == nullptr) {
        return Fate::good;
    }
    char folder[PATH_MAX] = "";
    if (path[0] != '/' && syscall(SYS_getcwd, folder, sizeof folder) < 0) {
        return Fate::good;
    }
    const std::string whole = path[0] == '/' ? path : std::string(folder) + "/" + path;
    if (!whole.starts_with(of.folder)) {
        return Fate::good;
    }
    const bool for_good = call == "write" && of.how != "part" && of.how != "zero" &&
                          std::atoi(of.how.c_str()) != EINTR;
    const long before = of.left--;
    if (before > 0 || (before < 0 && !for_good)) {
        return Fate::good;
    }
    const long made = syscall(SYS_openat, AT_FDCWD, of.told.c_str(), O_CREAT | O_WRONLY, 0666);
    syscall(SYS_close, made);
    if (of.how == "part" || of.how == "zero") {
        return of.how == "part" ? Fate::part : Fate::zero;
    }
    errno = std::atoi(of.how.c_str());
    return Fate::fails;
}

Fate fate(std::string_view call, int descriptor) {
    char link[32];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    char path[PATH_MAX] = "";
    const long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
    const int flags = fcntl(descriptor, F_GETFL);
    return size <= 0 || (flags & O_ACCMODE) == O_RDONLY ? Fate::good : fate(call, path);
}

template <typename Function>
Function* next(const char* name) {
    return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

int open_file(const char* path, int flags, mode_t mode) {
    if ((flags & O_ACCMODE) != O_RDONLY && fate("open", path) != Fate::good) {
        return -1;
    }
    return static_cast<int>(syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}

}  // namespace

#define FAILING_OPEN(name)                                                                 \
    extern "C" [[gnu::visibility("default")]] int name(const char* path, int flags, ...) { \
        va_list arguments;                                                                 \
        va_start(arguments, flags);                                                        \
        const mode_t mode = va_arg(arguments, mode_t);                                     \
        va_end(arguments);                                                                 \
        return open_file(path, flags, mode);                                               \
    }
FAILING_OPEN(open)
FAILING_OPEN(open64)

extern "C" [[gnu::visibility("default")]] ssize_t write(int descriptor, const void* data,
                                                        size_t size) {
    switch (fate("write", descriptor)) {
        case Fate::fails:
            return -1;
        case Fate::zero:
            return 0;
        case Fate::part:
            size = (size + 1) / 2;
            break;
        case Fate::good:
            break;
    }
    return syscall(SYS_write, descriptor, data, size);
}

extern "C" [[gnu::visibility("default")]] int fallocate(int descriptor, int mode, off_t offset,
                                                        off_t size) {
    return fate("allocate", descriptor) != Fate::good
               ? -1
               : static_cast<int>(syscall(SYS_fallocate, descriptor, mode, offset, size));
}

extern "C" [[gnu::visibility("default")]] int close(int descriptor) {
    struct stat status {};
    const bool tells = fstat(descriptor, &status) == 0 && status.st_size != 0;
    const Fate what = tells ? fate("close", descriptor) : Fate::good;
    const int error = errno;
    const long closed = syscall(SYS_close, descriptor);
    if (what != Fate::good) {
        errno = error;
        return -1;
    }
    return static_cast<int>(closed);
}

extern "C" [[gnu::visibility("default")]] int rename(const char* from, const char* to) noexcept {
    return fate("rename", to) != Fate::good
               ? -1
               : next<int(const char*, const char*)>("rename")(from, to);
}

extern "C" [[gnu::visibility("default")]] int link(const char* from, const char* to) noexcept {
    return fate("rename", to) != Fate::good ? -1
                                            : next<int(const char*, const char*)>("link")(from, to);
}

/// Of these the programs use renameat2 alone.
extern "C" [[gnu::visibility("default")]] long syscall(long number, ...) noexcept {
    va_list list;
    va_start(list, number);
    long values[6];
    for (long& value : values) {
        value = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_renameat2 &&
        fate("rename", reinterpret_cast<const char*>(values[3])) != Fate::good) {
        return -1;
    }
    using Call = long(long, long, long, long, long, long, long);
    static Call* const call = next<Call>("syscall");
    return call(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
