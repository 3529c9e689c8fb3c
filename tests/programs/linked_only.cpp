// Linked with libcuda, asks only for its version, which needs no cuInit.
//
// Recorded: nothing; no file is written, since CUDA was never started.
#include "program.hpp"

int main() {
    int version = 0;
    CHECK(cuDriverGetVersion(&version));
    SAY("a driver is there: %s\n", version > 0 ? "yes" : "no");
    return 0;
}
