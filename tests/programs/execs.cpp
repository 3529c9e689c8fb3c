// exec keeps the process id. The program uses CUDA and then becomes itself once more, which uses
// CUDA again.
//
// Recorded: two logs for one process id, never mixed. The first: 1 allocation of 111,000 bytes, cut
// off. The second: 2 allocations of 222,000 bytes, 1 free, ended by exit.
#include <cstring>

#include "program.hpp"

using namespace program;

int main(int argc, char** argv) {
    use_device();
    if (argc == 2 && std::strcmp(argv[1], "second") == 0) {
        const CUdeviceptr first = allocate(222000);
        allocate(222000);
        release(first);
        SAY("second image: 2 allocations, 1 free\n");
        return 0;
    }
    allocate(111000);
    SAY("first image: 1 allocation\n");
    ::execl("/proc/self/exe", argv[0], "second", static_cast<char*>(nullptr));
    return 4;
}
