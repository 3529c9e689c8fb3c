// A static program has no loader. libdw tries to load libdebuginfod when the program starts, which
// would bring the C library of the machine in beside the program's own; it finds none. Servers are
// asked by a program of their own (report/symbols/debuginfod.hpp).

extern "C" {
// What the linker calls in place of each (--wrap).
void* __wrap_dlopen(const char* path, int mode);
void* __wrap_dlsym(void* handle, const char* name);
int __wrap_dlclose(void* handle);
char* __wrap_dlerror();
}

void* __wrap_dlopen(const char* /*path*/, int /*mode*/) {
    return nullptr;
}

void* __wrap_dlsym(void* /*handle*/, const char* /*name*/) {
    return nullptr;
}

int __wrap_dlclose(void* /*handle*/) {
    return -1;
}

char* __wrap_dlerror() {
    static char text[] = "a static program loads no library";
    return text;
}
