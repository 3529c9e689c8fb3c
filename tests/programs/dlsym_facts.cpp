// Facts about dlsym that must be the same with a preloaded library that replaces it: names of
// nobody, names that look like CUDA's, the RTLD_DEFAULT and RTLD_NEXT handles, handles of one
// library, the texts of dlerror. Not linked with libcuda.
//
// Recorded: nothing; no file is written.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

void ask(void* handle, const char* handle_name, const char* name) {
    (void)::dlerror();
    void* address = ::dlsym(handle, name);
    const char* error = ::dlerror();
    // The text begins with the path of the object that asked. For a name that a preloaded library
    // exports that library has to ask again in its own name; everywhere else the path must be
    // right.
    const bool exported = std::strncmp(name, "cu", 2) == 0 || std::strncmp(name, "nvml", 4) == 0;
    const char* text =
        exported && error != nullptr ? std::strstr(error, "undefined symbol") : error;
    std::printf("%s %s: %s; %s\n", handle_name, name, address != nullptr ? "found" : "null",
                text != nullptr ? text : "no error");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int cuMemAlloc_of_my_own() {
    return 1;
}
extern "C" __attribute__((visibility("default"))) int curl_of_my_own() {
    return 2;
}

int main() {
    for (const char* name :
         {"cuInit", "cuMemAlloc_v2", "cuGetProcAddress_v2", "cuNoSuchFunction", "curl_easy_init",
          "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetName", "cublasCreate_v2", "cuMemAlloc_of_my_own",
          "curl_of_my_own", "malloc", "dlopen", "", "cu", "no_such_symbol_anywhere"}) {
        ask(RTLD_DEFAULT, "default", name);
        ask(RTLD_NEXT, "next", name);
    }
    void* libc = ::dlopen("libc.so.6", RTLD_NOW);
    ask(libc, "libc", "strlen");
    ask(libc, "libc", "cuInit");
    ask(libc, "libc", "dlsym");
    void* self = ::dlopen(nullptr, RTLD_NOW);
    ask(self, "self", "cuMemAlloc_of_my_own");
    ask(self, "self", "cuMemFree_v2");
    std::printf("strlen is strlen: %s\n",
                reinterpret_cast<std::size_t (*)(const char*)>(::dlsym(libc, "strlen"))("four") == 4
                    ? "yes"
                    : "no");
    const void* first = ::dlsym(self, "puts");
    const void* second = ::dlsym(self, "puts");
    const void* third = ::dlsym(libc, "puts");
    std::printf("one name asked for three times: %s\n",
                first == second && first == third ? "the same" : "not the same");
    (void)::dlsym(libc, "first_missing_name");
    (void)::dlsym(libc, "second_missing_name");
    const char* last = ::dlerror();
    std::printf("the last error: %s\n", last != nullptr ? last : "none");
    std::printf("then: %s\n", ::dlerror() == nullptr ? "none" : "one more");
    void* versioned = ::dlvsym(libc, "memcpy", "GLIBC_2.14");
    std::printf("dlvsym: %s\n", versioned != nullptr ? "found" : "null");
    return 0;
}
