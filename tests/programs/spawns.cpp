// A CUDA program that starts other programs without CUDA, by system() and popen(), as build systems
// and frameworks do.
//
// Recorded: one report, with 1 allocation and 1 free; the children write nothing and say nothing.
#include "program.hpp"

using namespace program;

int main() {
    use_device();
    const CUdeviceptr block = allocate(50000);
    SAY("system: %d\n", std::system("echo from a shell; exit 0"));
    FILE* pipe = ::popen("echo one; echo two", "r");
    char line[64];
    while (std::fgets(line, sizeof line, pipe) != nullptr) {
        SAY("popen: %s", line);
    }
    SAY("pclose: %d\n", ::pclose(pipe));
    release(block);
    return 0;
}
